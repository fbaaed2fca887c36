"""Slow, obvious twins of every kernel, written from the formulas on the readable `Problem`, never on our arrays."""

from naive.constrained_q import algorithm_one
from naive.draws import Walk, Xoshiro, alias_table, order_met, paid, pick, simulate_by_walking
from naive.harvesting import convex_optimum, harvest_expectation, harvest_optimum, harvest_total, harvest_value
from naive.planning import (
    best_of_all_tables,
    budget_programme,
    extended_programme,
    least_violation_then_reward,
    occupancy_programme,
    optimistic_plan,
)
from naive.problems import (
    decision_points,
    evaluate_by_trajectories,
    every_table,
    expected_sum,
    follow,
    mean_of_evaluations,
    modified_reward,
    plain_reward,
    safe_entries,
    total_violation,
    trajectories,
)
from naive.ragged import change_fault, distribution_fault, number_lists, repeated_member
from naive.safe_q import DiscountedPracticalTwin, PracticalTwin
from naive.scheduling import best_over_all_orders, expected_costs_of_order, order_costs

__all__ = [
    "DiscountedPracticalTwin",
    "PracticalTwin",
    "Walk",
    "Xoshiro",
    "algorithm_one",
    "alias_table",
    "best_of_all_tables",
    "best_over_all_orders",
    "budget_programme",
    "change_fault",
    "convex_optimum",
    "decision_points",
    "distribution_fault",
    "evaluate_by_trajectories",
    "every_table",
    "expected_costs_of_order",
    "expected_sum",
    "extended_programme",
    "follow",
    "harvest_expectation",
    "harvest_optimum",
    "harvest_total",
    "harvest_value",
    "least_violation_then_reward",
    "mean_of_evaluations",
    "modified_reward",
    "number_lists",
    "occupancy_programme",
    "optimistic_plan",
    "order_costs",
    "order_met",
    "paid",
    "pick",
    "plain_reward",
    "repeated_member",
    "safe_entries",
    "simulate_by_walking",
    "total_violation",
    "trajectories",
]
