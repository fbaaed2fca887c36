"""Training: the learning loop, its history, and the files of runs."""
