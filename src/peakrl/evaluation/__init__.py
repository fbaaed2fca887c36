"""What a policy is worth: exactly, by simulation, and the statistics of many runs."""

from peakrl.evaluation.endless import EndlessEvaluation
from peakrl.evaluation.exact import Evaluation, evaluate
from peakrl.evaluation.rollouts import RolloutStep, rollout
from peakrl.evaluation.simulation import Simulation, simulate

__all__ = ["EndlessEvaluation", "Evaluation", "RolloutStep", "Simulation", "evaluate", "rollout", "simulate"]
