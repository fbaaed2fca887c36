"""Problems without an end by brute force: every stationary deterministic policy, with fractions."""

from fractions import Fraction
from itertools import product


def solved(matrix, right):
    """Return x with matrix x = right, by Gauss-Jordan elimination."""
    size = len(right)
    rows = [[*map(Fraction, matrix[i]), Fraction(right[i])] for i in range(size)]
    for i in range(size):
        pivot = next(k for k in range(i, size) if rows[k][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for k in range(size):
            if k != i and rows[k][i] != 0:
                rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[-1] for row in rows]


class Chain:
    """The walk under one policy, `rows` [state]; states in `target` are never left."""

    def __init__(self, model, rows, target=()):
        self.size, self.rows, self.target = model.num_slots, rows, target
        self.chance = [[Fraction(0)] * self.size for _ in range(self.size)]
        for slot, row in enumerate(rows):
            outcomes = model.outcomes_of_row(row)
            chances = list(map(Fraction, model.outcome_probability[outcomes].tolist()))
            if slot in target:
                self.chance[slot][slot] = Fraction(1)
                continue
            for following, chance in zip(model.outcome_next[outcomes].tolist(), chances, strict=True):
                self.chance[slot][following] += chance / sum(chances)
        self.after = [self.reached(slot) for slot in range(self.size)]

    def reached(self, slot):
        """Return every state that may follow a state, and itself."""
        seen, found = {slot}, [slot]
        while found:
            row = self.chance[found.pop()]
            new = {following for following in range(self.size) if row[following] > 0} - seen
            seen |= new
            found += new
        return seen

    def discounted(self, reward, discount):
        """Return [state]: the discounted sum."""
        discount, size = Fraction(discount), range(self.size)
        return solved([[(i == j) - discount * self.chance[i][j] for j in size] for i in size], reward)

    def absorbed(self, ends):
        """Return [state]: the mean of `ends` {state: number} where the walk enters these states, which it must."""
        size = range(self.size)
        lines = [[(i == j) - (i not in ends) * self.chance[i][j] for j in size] for i in size]
        return solved(lines, [ends.get(i, 0) for i in size])

    def gain(self, reward):
        """Return [state]: the average of a step in the long run."""
        gains = {}
        for slot in range(self.size):
            states = sorted(self.after[slot])
            if slot in gains or any(slot not in self.after[each] for each in states):
                continue  # known, or not recurrent
            lines = [[self.chance[i][j] - (i == j) for i in states] for j in states[1:]]
            share = solved([[1] * len(states), *lines], [1] + [0] * (len(states) - 1))
            mean = sum(part * reward[each] for part, each in zip(share, states, strict=True))
            gains |= dict.fromkeys(states, mean)
        return self.absorbed(gains)

    def absorbed_in(self, target):
        """Return [state]: the probability of ever reaching the target."""
        return self.gain([int(slot in target) for slot in range(self.size)])

    def time(self):
        """Return [state]: the expected number of steps to the target; None where it may be missed."""
        sure = [all(self.after[each] & self.target for each in self.after[slot]) for slot in range(self.size)]
        size = range(self.size)
        lines = [[(i == j) - (sure[i] and i not in self.target) * self.chance[i][j] for j in size] for i in size]
        times = solved(lines, [int(sure[i] and i not in self.target) for i in size])
        return [time if known else None for time, known in zip(times, sure, strict=True)]

    def safe_from(self, model):
        """Return the states from which nothing is ever violated before the target."""
        return {
            slot
            for slot in range(self.size)
            if all(model.keeps[self.rows[each]] or each in self.target for each in self.after[slot])
        }


def policies(model):
    """Yield [state] the row of every stationary deterministic policy."""
    return product(*(model.rows_of_slot(slot) for slot in range(model.num_slots)))


def at_start(model, values):
    """Return the mean over the first states."""
    chances = [Fraction(chance) for chance in model.first_probability.tolist()]
    return sum(c * values[s] for c, s in zip(chances, model.first_slot.tolist(), strict=True)) / sum(chances)
