"""One machine: every order of the jobs, straight from the definitions."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod

import numpy as np


def order_costs(jobs, orders):
    """Violation and the objectives of every order, straight from the definitions: orders is [order, place]."""
    fields = ("processing", "due", "deadline", "weight", "release")
    take, due, deadline, weight, release = (np.array([getattr(job, f) for job in jobs])[orders] for f in fields)
    end, now = np.empty_like(take), np.zeros(len(take), take.dtype)
    for place in range(take.shape[1]):
        now = np.maximum(now, release[:, place]) + take[:, place]
        end[:, place] = now
    late = np.maximum(0, end - due)
    return {
        "violation": np.maximum(0, end - deadline).sum(axis=1),
        "max_tardiness": late.max(axis=1),
        "total_tardiness": late.sum(axis=1),
        "weighted_late_work": (weight * np.minimum(take, late)).sum(axis=1),
        "weighted_completion": (weight * end).sum(axis=1),
        "weighted_tardiness": (weight * late).sum(axis=1),
    }


def best_over_all_orders(jobs, objective):
    """(least violation, least objective at that violation) by trying every order."""
    costs = order_costs(jobs, np.array(list(itertools.permutations(range(len(jobs))))))
    violation = costs["violation"].min()
    return int(violation), float(costs[objective][costs["violation"] == violation].min())


def expected_costs_of_order(jobs, order):
    """Expected violation and objectives of a fixed order of jobs with random times, by every combination of times."""
    totals = {}
    for pairs in itertools.product(*(job.pairs for job in jobs)):
        drawn = [replace(job, processing=time) for job, (_, time) in zip(jobs, pairs, strict=True)]
        chance = prod(probability for probability, _ in pairs)
        for what, value in order_costs(drawn, np.array([order])).items():
            totals[what] = totals.get(what, 0.0) + chance * float(value[0])
    return totals
