"""Three queues and one server, in three forms: for many states at once, for one after another, and for Storm.

Each step one of the queues is served, at one of two speeds, and at most one customer arrives. With room for 46 in each
queue 87,608 states and 525,648 pairs can be reached, most of them with four outcomes.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from peakrl.model.array_problem import ArrayProblem
from peakrl.model.problem import Outcome, Problem

#: (probability, who arrives: how many in each queue)
ARRIVALS = ((0.4, (0, 0, 0)), (0.3, (1, 0, 0)), (0.2, (0, 1, 0)), (0.1, (0, 0, 1)))
ACTIONS = tuple((who, speed) for who in range(3) for speed in (1, 2))
CROWDED = 30


class Queues(ArrayProblem):
    """Asked about whole layers of states."""

    name, stationary, horizon = "queues", True, 150
    constraint_names = ("crowd",)
    all_actions = ACTIONS

    def __init__(self, room: int = 46) -> None:
        self.room = room
        self.state_ranges = {"first": (0, room), "second": (0, room), "third": (0, room)}

    def initial(self) -> Any:
        """Begin with nobody waiting."""
        return [(1.0, (0, 0, 0))]

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Serve, then somebody may arrive."""
        who, speed = action
        served = np.minimum(state[who], speed)
        left = tuple(queue - served if number == who else queue for number, queue in enumerate(state))
        reward, margin = served - 0.2 * speed, 3.0 * CROWDED - sum(left)
        return [
            Outcome(
                chance,
                tuple(np.minimum(queue + more, self.room) for queue, more in zip(left, arriving, strict=True)),
                reward,
                (margin,),
            )
            for chance, arriving in ARRIVALS
        ]


class PlainQueues(Problem):
    """The same, asked about one state after another."""

    name, stationary, horizon = "queues", True, 150
    constraint_names = ("crowd",)

    def __init__(self, room: int = 46) -> None:
        self.room = room

    def initial(self) -> Any:
        """Begin with nobody waiting."""
        return [(1.0, (0, 0, 0))]

    def actions(self, step: int, state: Any) -> Any:
        """Any queue, at any speed."""
        return ACTIONS

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Serve, then somebody may arrive."""
        who, speed = action
        served, room = min(state[who], speed), self.room
        a, b, c = (queue - served if number == who else queue for number, queue in enumerate(state))
        reward, margin = served - 0.2 * speed, (3.0 * CROWDED - a - b - c,)
        return [
            Outcome(chance, (min(a + i, room), min(b + j, room), min(c + k, room)), reward, margin)
            for chance, (i, j, k) in ARRIVALS
        ]


class Prism:
    """The same in the language of PRISM, which Storm reads; without an end, so that a few states more are reached."""

    name = "queues"

    def __init__(self, room: int = 46) -> None:
        self.storm: Any = importlib.import_module("stormpy")
        with tempfile.TemporaryDirectory(prefix="peakrl-bench-") as folder:
            path = Path(folder) / "queues.prism"
            path.write_text("\n".join(prism_lines(room)), encoding="ascii")
            self.program = self.storm.parse_prism_program(str(path))


def prism_lines(room: int) -> Iterator[str]:
    """Yield the lines of a PRISM program."""
    yield f"mdp\nmodule queues\n{''.join(f'  q{i} : [0..{room}] init 0;' for i in range(3))}"
    for who, speed in ACTIONS:
        left = [f"max(q{i}-{speed},0)" if i == who else f"q{i}" for i in range(3)]
        laws = (
            f"{chance} : " + " & ".join(f"(q{i}'=min({left[i]}+{more[i]},{room}))" for i in range(3))
            for chance, more in ARRIVALS
        )
        yield f"  [serve{who}{speed}] true -> {' + '.join(laws)};"
    yield "endmodule\nrewards"
    yield from (f"  [serve{who}{speed}] true : min(q{who},{speed})-0.2*{speed};" for who, speed in ACTIONS)
    yield "endrewards"


class Built(NamedTuple):
    """How much was built."""

    num_pairs: int
    num_rows: int


def storm_built(problem: Prism) -> Built:
    """Let Storm build its sparse model."""
    built = problem.storm.build_model(problem.program)
    return Built(built.nr_choices, built.nr_choices)
