"""Problems listed in a table: arrays in an .npz file, outcomes in a .csv file."""
