"""Primal-dual learners for limits on expected violations."""
