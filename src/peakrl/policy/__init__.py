"""Policies: tables by step and state, mixtures of them, and their files."""

from peakrl.policy.files import load_policy
from peakrl.policy.mixture import AveragedPolicy
from peakrl.policy.tables import Policy, StochasticPolicy

__all__ = ["AveragedPolicy", "Policy", "StochasticPolicy", "load_policy"]
