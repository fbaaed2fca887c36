"""Learners that plan by linear programmes on counts."""
