"""The best plan at a price where laws lie in a box, a linear programme for every pair."""

from __future__ import annotations

import numpy as np


def best_law(p, low, high, worth):
    """The most that a law between two bounds is worth."""
    from scipy.optimize import linprog

    found = linprog(-worth, A_eq=np.ones((1, len(p))), b_eq=[1.0], bounds=list(zip(low, high, strict=True)))
    return -found.fun


def priced_values(chain, reward, cost, barred, price, box):
    """[step][slot]: the most of value less price times cost; `box` is {row: {next slot: (P^, beta)}}, or empty."""
    layout = chain.layout
    slots, ahead = len(layout.row_start) - 1, np.zeros(len(layout.row_start) - 1)
    table = []
    for step in range(layout.horizon - 1, -1, -1):
        here = np.zeros(slots)
        for slot in range(*layout.step_slots[step]):
            totals = []
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                if barred[step * layout.entry_stride + row]:
                    continue
                law = box.get(row) if step < layout.horizon - 1 else None
                if law:
                    places = [place for place in law if chain.step_of_slot[place] == step + 1 or layout.node_stride]
                    p, beta = (np.array([law[place][i] for place in places]) for i in (0, 1))
                    follows = best_law(p, np.maximum(p - beta, 0), np.minimum(p + beta, 1), ahead[places])
                else:
                    d = layout.row_distribution[row]
                    outcomes = slice(layout.outcome_start[d], layout.outcome_start[d + 1])
                    follows = layout.outcome_probability[outcomes] @ ahead[layout.outcome_next[outcomes]]
                totals.append(reward[row] - price * cost[row] + follows)
            here[slot] = max(totals, default=0.0)
        table.append(here)
        ahead = here
    return table[::-1]
