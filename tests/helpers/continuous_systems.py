"""Continuous systems, agents that try to leave their safe sets, and random small problems."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.continuous import converter, vehicle
from peakrl.continuous import ContinuousProblem


def room(**options):
    """One heater, any temperature outside."""
    return ContinuousProblem(
        lambda x, a, w: [x[0] + 0.1 * (w[0] - x[0]) + 2.5 * a],
        box={"temperature": (18, 24)}, actions=[0, 1], disturbance={"outside": (0, 10)}, name="room", **options,
    )  # fmt: skip


def two_rooms(**options):
    """Two rooms in contact and one heater that warms either or none."""

    def step(x, a, w):
        heat = [1.2 * (a == 1), 1.2 * (a == 2)]
        return [x[i] + 0.1 * (x[1 - i] - x[i]) + 0.03 * (w[0] - x[i]) + heat[i] for i in (0, 1)]

    box = {"first": (18, 22), "second": (18, 22)}
    return ContinuousProblem(
        step, box=box, actions=[0, 1, 2], disturbance={"outside": (8, 10)}, name="rooms", **options
    )


def pendulum(noise=0.3, **options):
    """Gymnasium's Pendulum-v1 with three torques and a random one, upright within half a radian."""

    def step(x, a, w):
        angle, speed = x
        faster = np.clip(speed + (15.0 * np.sin(angle) + 3.0 * (a + w[0])) * 0.05, -8.0, 8.0)
        return [angle + faster * 0.05, faster]

    box, torque = {"angle": (-0.5, 0.5), "speed": (-2.5, 2.5)}, {"torque": (-noise, noise)}
    return ContinuousProblem(step, box=box, actions=[-2.0, 0.0, 2.0], disturbance=torque, name="pendulum", **options)


def cruise(**options):
    """Keep behind a car whose driver brakes or accelerates at will (GridShielding)."""

    def step(x, a, w):
        own, front, distance = x
        faster, other = np.clip(own + a, -10.0, 20.0), np.clip(front + w[0], -8.0, 20.0)
        return [faster, other, np.minimum(distance + ((front - own) + (other - faster)) / 2, 200.0)]

    return ContinuousProblem(
        step, box={"own": (-10, 20), "front": (-8, 20), "distance": (0, 200)}, actions=[-2.0, 0.0, 2.0],
        disturbance=[{"acceleration": (a, a)} for a in (-2, 0, 2)], **{"name": "cruise", **options},
    )  # fmt: skip


def logistic(**options):
    """A map whose largest value lies in the interior of a cell, so that images of corners are too small."""
    return ContinuousProblem(
        lambda x, a, w: [a * x[0] * (1.0 - x[0]) + w[0]],
        box={"share": (0.15, 0.897)}, actions=[2.8, 3.2, 3.55], disturbance={"change": (-0.01, 0.01)}, name="logistic",
        **options,
    )  # fmt: skip


def turning(**options):
    """An angle that wraps round, a speed with friction, and a forbidden sector."""

    def step(x, a, w):
        angle, speed = x
        faster = 0.9 * speed + 0.1 * a + w[0]
        return [angle + faster, faster]

    return ContinuousProblem(
        step, box={"angle": (-np.pi, np.pi), "speed": (-1, 1)}, actions=[-1, 0, 1], disturbance={"push": (-0.02, 0.02)},
        outside={"angle": "wrap"}, constraints=lambda x, a: [np.abs(x[0] - 1.0) - 0.4], name="turning", **options,
    )  # fmt: skip


def jumping(**options):
    """A state that is reset where a condition holds, an exit above, a saturation below."""

    def step(x, a, w):
        height, charge = x
        up = np.where((charge > 0.5) & (height < 1.0), height + 0.3 * a + w[0], height - 0.2 + w[0])
        return [up, np.where(up > 0.9, 0.2, charge + 0.15 - 0.2 * a)]

    return ContinuousProblem(
        step, box={"height": (0, 1.5), "charge": (0, 1)}, actions=[0, 1],
        disturbance=[{"w": (-0.1, 0)}, {"w": (0, 0.1)}],
        outside={"height": "clip", "charge": "exit"}, constraints=lambda x, a: [x[0] - 0.25 * (1 - a)],
        available=lambda x, a: x[1] >= 0.1 * a, name="jumping", **options,
    )  # fmt: skip


__all__ = ["converter", "vehicle"]

#: Systems and cells with which their safe set is neither empty nor everything.
SYSTEMS = {
    "room": (room, 300), "rooms": (two_rooms, 60), "pendulum": (pendulum, 100), "converter": (converter, 400),
    "cruise": (cruise, (30, 28, 100)), "logistic": (logistic, 150), "turning": (turning, (90, 40)),
    "jumping": (jumping, (75, 60)),
}  # fmt: skip


def sabotaged(make, kind):
    """The same problem, with images of the centre or the corners of a cell, or without its disturbance."""
    true = make()

    def image(low, high, a, w_low, w_high):
        middle = [(p + q) / 2 for p, q in zip(low, high, strict=True)]
        ends = [middle] if kind == "centre" else [low, high]
        disturbances = [(w_low + w_high) / 2] if kind == "no disturbance" else [w_low, w_high]
        points = [
            true.step([ends[side][j] for j, side in enumerate(sides)], a, list(w))
            for sides in itertools.product(range(len(ends)), repeat=len(low))
            for w in disturbances
        ]
        coordinates = list(zip(*points, strict=True))
        return tuple([extreme.reduce(each) for each in coordinates] for extreme in (np.minimum, np.maximum))

    return make(image=image)


def points_of(safe, count, rng):
    """Points of safe cells, a third of them on edges."""
    low, high = np.stack([safe.grid.bounds(cell) for cell in rng.choice(np.flatnonzero(safe.cells), count)], axis=1)
    share = np.where(rng.random((count, 1)) < 0.3, rng.integers(0, 2, low.shape), rng.random(low.shape))
    return np.clip(low + share * (high - low), low, high)


def play(problem, safe, agent, steps, rng, lanes=500):
    """Return (violations, dead ends) of a random or a hostile agent behind the shield, many lanes at once."""
    x, wrong, stuck = points_of(safe, lanes, rng), 0, 0
    parts = list(zip(problem.noise_low, problem.noise_high, strict=True))
    worst = [np.array(w)[:, None] for low, high in parts for w in itertools.product(*zip(low, high, strict=True))]
    for _ in range(steps // lanes):
        mask = safe.mask(x)
        stuck += int((~mask.any(axis=1)).sum())
        if agent == "random":
            choice = np.argmax(np.where(mask, rng.random(mask.shape), -1), axis=1)
            low, high = parts[rng.integers(len(parts))]
            share = rng.random((lanes, len(low)))
            share = np.where(rng.random((lanes, 1)) < 0.5, np.round(share), share)
            moves = [(choice == c, c, (low + share * (high - low)).T) for c in range(mask.shape[1])]
        else:
            moves = [(mask[:, c], c, w) for c in range(mask.shape[1]) for w in worst]
        following, least = np.full(x.shape, np.nan), np.full(lanes, np.inf)
        for taken, c, w in moves:
            y, margins = x.T, []
            for index in problem.sequences[c]:
                before, y = y, np.array(np.broadcast_arrays(*problem.move(y, problem.actions[index], w)))
                found = problem.margins(before, problem.actions[index], y)
                margins += [np.broadcast_to(value, lanes) for value in found]
            margin = np.min(margins, axis=0, initial=1e9) + 1e-9 * rng.random(lanes) * (agent != "random")
            better = taken & (margin < least)
            least, following = np.where(better, margin, least), np.where(better[:, None], y.T, following)
        wrong += int((least < 0).sum())
        inside = ((following >= problem.low) & (following <= problem.high)).all(axis=1)
        fresh = ~inside | (rng.random(lanes) < 0.01) | (least < 0)
        x = np.where(fresh[:, None], points_of(safe, lanes, rng), following)
    return wrong, stuck


def random_problem(rng):
    """A problem of 1 to 3 coordinates with random rules, conditions, disturbances and constraints; and cells for it."""
    d, count = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    matrix, shift = rng.normal(0, 0.5, (d, d)) + 0.5 * np.eye(d), rng.normal(0, 0.2, (d, 3))
    bend, limit, kind = rng.normal(0, 0.2, d), rng.normal(0, 0.3), int(rng.integers(4))

    def step(x, a, w):
        found = []
        for i in range(d):
            value = float(shift[i, a]) + w[0]
            for j in range(d):
                if abs(matrix[i, j]) > 0.3:
                    value = value + float(matrix[i, j]) * x[j]
            found.append(value + float(bend[i]) * (np.sin(3.0 * x[i]) if kind == 0 else np.square(x[i])))
        if kind == 1:
            found[0] = np.where(x[-1] > limit, found[0], -0.5 * found[0])
        if kind == 2:
            found = [np.where((x[0] < limit) | (value > 0.5), 0.3 * value, value) for value in found]
        return found

    names = [f"x{j}" for j in range(d)]
    noise = [{"w": tuple(np.sort(rng.uniform(-0.1, 0.1, 2)))} for _ in range(count)]
    some = float(rng.uniform(-0.9, -0.3))
    problem = ContinuousProblem(
        step, box={name: (-1, 1 + 0.1 * j) for j, name in enumerate(names)}, actions=[0, 1, 2], disturbance=noise,
        outside={name: str(rng.choice(["violation", "exit", "clip", "wrap"])) for name in names},
        constraints=(lambda x, a: [x[0] - some * a]) if rng.random() < 0.5 else None,
        available=(lambda x, a: x[-1] + 0.5 > 0.2 * a) if rng.random() < 0.3 else None,
        block=2 if rng.random() < 0.2 and count == 1 else 1,
    )  # fmt: skip
    return problem, tuple(int(n) for n in rng.integers(2, 9 if d < 3 else 5, d))
