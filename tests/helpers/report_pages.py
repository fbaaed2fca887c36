"""What tests of the report page look at: small records, runs, and a page taken apart."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import gymnasium

from experiments.records import PAPER, Check, FigureRecord, Row
from peakrl import ConstrainedEnv, Outcome, Problem, compile_model, learn
from peakrl.learners import PosteriorSampling, SafeQ
from peakrl.problems import energy_harvesting, scheduling_example

#: A label that would end a script, open a tag and break a template if it were not escaped.
HOSTILE = "</script><img src=x onerror=alert(1)>{{ 7*7 }}\u2028&amp;"


def figure_record(name: str = "figure-2", title: str = "a small figure") -> FigureRecord:
    """A figure of two curves, one of the paper's, and a level."""
    rows = [
        Row("frozen", curve, "sum rate", "bits", float(x), 50.0 + x / 10 + offset, 0.5, 3)
        for offset, curve in enumerate(("slack 0.1", "slack 0.01"))
        for x in range(10, 60, 10)
    ]
    rows.append(Row("frozen", f"{PAPER}slack 0.1", "sum rate", "bits", 30.0, 53.2, None, 1))
    rows.append(Row("frozen", "integer optimum", "sum rate", "bits", None, 57.25, None, 1))
    rows += [row._replace(measure="violation", unit="power units", mean=100 / (row.x or 1)) for row in rows[:10]]
    checks = (
        Check("sum rate, slack 0.1", "paper's curve", 53.2, 53.0, 0.4),
        Check("violation, slack 0.1", "paper's curve", 3.0, 3.3333333333333335, 0.1),
        Check("optimum", "exact value", 57.25, 57.25, None),
    )
    return FigureRecord(name, title, "episode", {"episodes": 50, "problem": {"peak": 8}}, tuple(rows), checks)


def save_runs(folder: Path) -> None:
    """Write a run on a small transmitter and one on Example 1 of the paper."""
    small = energy_harvesting(horizon=4, battery=4, peak_power=3, max_arrival=4, mean=2, std=1)
    for name, problem in (("energy", small), ("jobs", scheduling_example(1))):
        learn(compile_model(problem), SafeQ(), episodes=300).save(folder / f"{name}.run")


class Corridor(gymnasium.Env[int, int]):
    """Five cells; going right earns 1 in the last but violates with `risk` in the fourth."""

    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, risk: float = 0.0, floor: float = 0.0) -> None:
        self.risk, self.floor = risk, floor

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = 0
        return self.cell, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.cell = min(4, self.cell + 1) if action else max(0, self.cell - 1)
        cost = float(self.cell == 3 and self.np_random.random() < self.risk)
        return self.cell, float(self.cell == 4), False, False, {"cost": max(cost, self.floor)}


class Rooms(Problem):
    """Three fields: the temperature of two rooms and whether it is night; only one room can be heated at a time."""

    horizon, stationary, name, constraint_names = 3, True, "two rooms", ("warm enough",)

    def initial(self) -> Any:
        return [(0.5, (1, 1, "day")), (0.5, (1, 2, "night"))]

    def actions(self, step: int, state: Any) -> Any:
        return ("none", "left", "right")

    def outcomes(self, step: int, state: Any, action: Any) -> Any:
        left, right, _ = state
        for chance, after in ((0.5, "day"), (0.5, "night")):
            cold = 1 if after == "night" else 0
            warm = [min(2, max(0, one + (action == side) - cold)) for one, side in ((left, "left"), (right, "right"))]
            yield Outcome(chance, (*warm, after), -float(action != "none"), (left + right - 1.0,))


def save_all_kinds(folder: Path) -> None:
    """Write runs of a transmitter, of jobs, of a problem of three fields, and on an environment."""
    save_runs(folder)
    learn(compile_model(Rooms()), SafeQ(), episodes=100).save(folder / "rooms.run")
    settings = PosteriorSampling()
    learn(ConstrainedEnv(Corridor(0.3), horizon=6, reward_range=(0, 1)), settings, episodes=60).save(
        folder / "corridor.run"
    )


class Taken(HTMLParser):
    """A page taken apart: its tables, its script data, everything it refers to, and its tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.references: list[str] = []
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.texts: dict[str, str] = {}
        self._rows: list[list[str]] | None = None
        self._cell = False
        self._script = ""
        self.feed(html)

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.texts["page-data"])
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self.references += [str(found[name]) for name in ("src", "href", "action") if name in found]
        if tag == "table":
            self._rows = self.tables[str(found["id"])] = []
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag in ("td", "th") and self._rows is not None:
            self._rows[-1].append(str(found.get("data-value", "")))
            self._cell = "data-value" not in found
        elif tag == "script":
            self._script = str(found.get("id", "script"))

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._rows = None
        elif tag in ("td", "th"):
            self._cell = False
        elif tag == "script":
            self._script = ""

    def handle_data(self, data: str) -> None:
        if self._script:
            self.texts[self._script] = self.texts.get(self._script, "") + data
        elif self._cell and self._rows is not None:
            self._rows[-1][-1] += data
