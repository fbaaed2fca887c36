"""The safe set of a continuous problem as its definition says: sets of cells, one cell at a time."""

from __future__ import annotations

import itertools

import numpy as np

from peakrl.continuous.intervals import Interval, interval, paths, truth


def cells_of(problem, edges, j, low, high, wrap):
    """The cells of coordinate j that cover [low, high]; None if it may leave the box."""
    least, most = edges[j][0], edges[j][-1]
    if not low <= high:
        return None
    if problem.outside[j] == "clip":
        low, high = min(max(low, least), most), min(max(high, least), most)
    if problem.outside[j] == "violation" and not (low >= least and high <= most):
        return None
    if problem.outside[j] == "wrap":
        period = most - least
        low, high = low - wrap, high + wrap
        if low < least - period or high > most + period:
            return None
        pieces = [(max(low + k * period, least), min(high + k * period, most)) for k in (-1, 0, 1)]
    else:
        pieces = [(max(low, least), min(high, most))]
    found = set()
    for first, last in pieces:
        if first <= last:
            begin = max(k for k in range(len(edges[j]) - 1) if edges[j][k] <= first)
            end = min(k for k in range(len(edges[j]) - 1) if last <= edges[j][k + 1])
            found |= set(range(begin, max(begin, end) + 1))
    return found


def one_step(problem, edges, low, high, a, part, wrap):
    """Yield (satisfied, [coordinate] image (low, high)) for each path of one action on one box, before the rules."""
    x = [Interval(np.array([p]), np.array([q])) for p, q in zip(low, high, strict=True)]
    w = [Interval(p, q) for p, q in zip(problem.noise_low[part], problem.noise_high[part], strict=True)]

    def run():
        good = [] if problem.constraints is None else [interval(g).low >= 0 for g in problem.constraints(x, a)]
        good += [] if problem.available is None else [~truth(problem.available(x, a)).false]
        return good, [interval(y) for y in problem.step(x, a, w)]

    for (good, images), _ in paths(run):
        yield all(np.all(each) for each in good), [(float(y.low.min()), float(y.high.max())) for y in images]


def successors(problem, edges, low, high, actions, parts, wrap):
    """The cells that may follow a box by a sequence of actions; None if something may be violated."""
    found = set()
    for good, image in one_step(problem, edges, low, high, actions[0], parts[0], wrap):
        if not good:
            return None
        cells = [cells_of(problem, edges, j, *ends, wrap[j]) for j, ends in enumerate(image)]
        if any(each is None for each in cells):
            return None
        if len(actions) == 1:
            found |= set(itertools.product(*cells))
            continue
        boxes = [[]]
        for j, (p, q) in enumerate(image):
            least, most = edges[j][0], edges[j][-1]
            if problem.outside[j] == "wrap":
                p, q, period = p - wrap[j], q + wrap[j], most - least
                pieces = [(max(p + k * period, least), min(q + k * period, most)) for k in (-1, 0, 1)]
                pieces = [piece for piece in pieces if piece[0] <= piece[1]]
            else:
                pieces = [(min(max(p, least), most), min(max(q, least), most))]
            boxes = [[*box, piece] for box in boxes for piece in pieces]
        for box in boxes:
            more = successors(problem, edges, *zip(*box, strict=True), actions[1:], parts[1:], wrap)
            if more is None:
                return None
            found |= more
    return found


def safe_set(problem, cells, horizon=None):
    """Return [cell] layers and [cell, choice] steps; -1 if there is no end before the horizon."""
    edges = [np.linspace(low, high, n + 1) for low, high, n in zip(problem.low, problem.high, cells, strict=True)]
    wrap = [1e-9 * (e[-1] - e[0]) if rule == "wrap" else 0.0 for e, rule in zip(edges, problem.outside, strict=True)]
    every = list(itertools.product(*map(range, cells)))
    follow = {}
    for cell, (choice, sequence) in itertools.product(every, enumerate(problem.sequences)):
        low = [edges[j][k] - wrap[j] for j, k in enumerate(cell)]
        high = [edges[j][k + 1] + wrap[j] for j, k in enumerate(cell)]
        actions, total = [problem.actions[index] for index in sequence], set()
        for parts in itertools.product(range(len(problem.weights)), repeat=problem.block):
            found = successors(problem, edges, low, high, actions, parts, wrap)
            total = None if total is None or found is None else total | found
        follow[cell, choice] = total
    sets, choices = [set(every)], range(len(problem.sequences))
    while len(sets) - 1 != horizon and (len(sets) < 2 or sets[-1] != sets[-2]):
        kept = sets[-1]
        sets.append({c for c in kept if any(follow[c, a] is not None and follow[c, a] <= kept for a in choices)})
    most = len(sets) - 1
    layer = {c: max(k for k, some in enumerate(sets) if c in some) for c in every}
    steps = np.zeros((len(every), len(choices)), int)
    for (n, cell), a in itertools.product(enumerate(every), choices):
        if follow[cell, a] is not None:
            steps[n, a] = 1 + min([layer[after] for after in follow[cell, a]], default=most)
    layers = np.array([layer[c] for c in every])
    return np.where(layers == most, -1, layers), np.where(steps > (most if most != horizon else most - 1), -1, steps)


def value_bounds(problem, cells, discount, sweeps):
    """Return [cell] bounds on the best safe value for one action at a time, by plain iteration over sets of cells."""
    edges = [np.linspace(low, high, n + 1) for low, high, n in zip(problem.low, problem.high, cells, strict=True)]
    every, actions = list(itertools.product(*map(range, cells))), range(len(problem.actions))
    layer, _ = safe_set(problem, cells)
    pays, sure, perhaps = {}, {}, {}
    for n, cell in enumerate(every):
        low, high = ([edges[j][k + side] for j, k in enumerate(cell)] for side in (0, 1))
        x = [Interval(np.array([p]), np.array([q])) for p, q in zip(low, high, strict=True)]
        for a in actions:
            reward = interval(problem.reward(x, problem.actions[a]))
            pays[n, a] = float(np.min(reward.low)), float(np.max(reward.high))
            sure[n, a], perhaps[n, a] = [], []
            for part in range(len(problem.weights)):
                found = successors(problem, edges, low, high, [problem.actions[a]], [part], [0.0] * len(cells))
                sure[n, a].append(None if found is None else [every.index(each) for each in found])
                some = set()
                for _, image in one_step(problem, edges, low, high, problem.actions[a], part, None):
                    inside = all(q >= e[0] and p <= e[-1] for (p, q), e in zip(image, edges, strict=True))
                    clipped = [(max(p, e[0]), min(q, e[-1])) for (p, q), e in zip(image, edges, strict=True)]
                    if inside:
                        ends = [cells_of(problem, edges, j, *each, 0.0) for j, each in enumerate(clipped)]
                        some |= set(itertools.product(*ends))
                perhaps[n, a].append([every.index(each) for each in some])
            if problem.constraints is not None:
                best = [float(np.max(interval(g).high)) for g in problem.constraints(x, problem.actions[a])]
                perhaps[n, a] = perhaps[n, a] if min(best) >= 0 else [[]]
    least, most = min(p for p, _ in pays.values()), max(q for _, q in pays.values())
    safe = np.array([each == -1 for each in layer])
    low = np.where(safe, least / (1 - discount), -np.inf)
    high = np.full(len(every), most / (1 - discount))
    for _ in range(sweeps):
        lower, higher = np.full(len(every), -np.inf), np.full(len(every), -np.inf)
        for n, a in itertools.product(range(len(every)), actions):
            if all(found is not None and all(safe[m] for m in found) for found in sure[n, a]):
                ahead = sum(p * min(low[m] for m in f) for p, f in zip(problem.weights, sure[n, a], strict=True))
                lower[n] = max(lower[n], pays[n, a][0] + discount * ahead)
            if all(perhaps[n, a]):
                ahead = sum(p * max(high[m] for m in f) for p, f in zip(problem.weights, perhaps[n, a], strict=True))
                higher[n] = max(higher[n], pays[n, a][1] + discount * ahead)
        low, high = lower, higher
    return low, high
