"""Learners that plan by linear programs on counts."""
