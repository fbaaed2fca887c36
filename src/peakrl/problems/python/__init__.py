"""Problems that a function of the user's own makes."""
