"""Posterior sampling, the default learner."""
