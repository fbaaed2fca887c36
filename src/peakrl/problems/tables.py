"""Problems in tables: a list of outcomes in a .csv file, which has one row for each outcome and the columns

    state, action, next_state, reward        and optionally probability (default 1) and step;

every other column is a constraint, named by its header. Without a step column nothing depends on the step. States and
actions are strings; they become numbers if all of a kind are whole numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peakrl.checks import check_each, check_horizon, check_no_costs
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.problem import Outcome, Problem
from peakrl.specs.csv_table import number_cell, prefixed, read_csv, whole_cell
from peakrl.specs.registry import problem

TEXTS = ("state", "action", "next_state")
REQUIRED, OPTIONAL = (*TEXTS, "reward"), ("probability", "step")
_WORD = re.compile(r"-?[0-9]{1,9}")


def file_of(parameters: dict[str, Any], folder: Path) -> Path:
    """Return the table file."""
    file = parameters["file"]
    if not isinstance(file, str | Path) or not str(file) or "\0" in str(file):
        raise ProblemError(f"file is {file!r}; it must be the name of a .csv file")
    return folder / file


@problem(
    "tables",
    source=file_of,
    files=("file",),
    template=True,
    example={"file": "{name}.csv", "horizon": 10, "initial": "cold"},
)
def table_problem(
    file: str | Path,
    horizon: int | None = None,
    initial: int | str | Mapping[str, float] | None = None,
    reward_range: Sequence[float] | None = None,
    constraint_bounds: Sequence[float] | None = None,
    constraint_names: Sequence[str] | None = None,
    name: str | None = None,
) -> Problem:
    """Return the problem of a list of outcomes.

    Parameters
    ----------
    file
        A .csv file with one row for each outcome: state, action, next_state, reward, probability, step; every other
        column is a constraint (satisfied if >= 0).
    horizon
        Steps of an episode; by default, or if infinite, it has no end.
    initial
        A state, or {state: probability}; by default the state of the first row.
    reward_range, constraint_bounds, constraint_names, name
        As in `TabularModel.from_arrays`; by default those of the data.
    """
    path = Path(file)
    if path.suffix != ".csv":
        raise ProblemError(f"file is {path.name!r}; it must be a .csv file")
    steps = check_horizon(horizon, "horizon", MOST_STEPS, error=ProblemError)
    given = {"name": name, "reward_range": reward_range, "constraint_bounds": constraint_bounds}
    return problem_of_outcomes(path, steps, initial, constraint_names, given)


@dataclass(frozen=True, kw_only=True)
class ListedProblem(Problem):
    """A problem whose outcomes are listed."""

    name: str
    horizon: int | None
    constraint_names: Sequence[str]
    reward_range: tuple[float, float]
    constraint_bounds: Sequence[float]
    stationary: bool
    first: tuple[tuple[float, Hashable], ...]
    #: {(step, state): {action: outcomes}}; the step is 0 if nothing depends on it.
    table: Mapping[tuple[int, Hashable], Mapping[Hashable, Sequence[Outcome]]]

    def initial(self) -> Sequence[tuple[float, Hashable]]:
        """Return the possible first states."""
        return self.first

    def actions(self, step: int, state: Hashable) -> list[Hashable]:
        """Return the actions listed for the state, in the order of the file."""
        listed = self.table.get((0 if self.stationary else step, state))
        if listed is None:
            at = "" if self.stationary else f" at step {step}"
            raise ProblemError(
                f"no row has the state {state!r}{at}, which others lead to: add one that stays there, such as "
                f"{state},stay,{state} with the reward 0 (columns state, action, next_state)"
            )
        return list(listed)

    def outcomes(self, step: int, state: Hashable, action: Hashable) -> Sequence[Outcome]:
        """Return the listed outcomes."""
        return self.table[0 if self.stationary else step, state][action]


def problem_of_outcomes(
    path: Path, horizon: int | None, initial: Any, names: Any, declared: Mapping[str, Any]
) -> ListedProblem:
    """Return the problem of a .csv file; what is not `declared` is that of the data."""
    columns, rows = read_csv(path, REQUIRED, OPTIONAL, "outcome", more=True)
    check_no_costs(columns, path)
    constraints = [column for column in columns if column not in REQUIRED + OPTIONAL]
    if names is not None and sorted(map(str, check_each(names, "constraint_names", "names"))) != sorted(constraints):
        raise ProblemError(f"constraint_names is {names}, but the further columns of {path} are {constraints}")
    state_of, action_of = label_maker(rows, ("state", "next_state")), label_maker(rows, ("action",))
    table: dict[tuple[int, Hashable], dict[Hashable, list[Outcome]]] = {}
    for where, cells in rows:
        step, numbers = 0, {"probability": 1.0}
        for name, cell in cells.items():
            with prefixed(f"{where}, column {name!r}"):
                if name == "step":
                    step = whole_cell(cell, 0, (horizon or MOST_STEPS) - 1)
                elif name not in TEXTS:
                    numbers[name] = number_cell(cell)
        paid = numbers["reward"], tuple(numbers[name] for name in constraints)
        outcome = Outcome(numbers["probability"], state_of(cells["next_state"]), *paid)
        actions = table.setdefault((step, state_of(cells["state"])), {})
        outcomes = actions.setdefault(action_of(cells["action"]), [])
        if outcomes and "probability" not in columns:
            raise ProblemError(
                f"{where}: a second outcome of the same state and action, but no column is named 'probability' (taken "
                f"for constraints: {', '.join(constraints) or 'none'})"
            )
        outcomes.append(outcome)
    listed = [outcome for actions in table.values() for outcomes in actions.values() for outcome in outcomes]
    rewards = [outcome.reward for outcome in listed]
    largest = [max(abs(outcome.constraints[i]) for outcome in listed) or 1.0 for i in range(len(constraints))]
    seen = {"name": path.stem, "reward_range": (min(rewards), max(rewards)), "constraint_bounds": tuple(largest)}
    return ListedProblem(
        horizon=horizon,
        constraint_names=tuple(constraints),
        stationary="step" not in columns,
        first=first_states(rows[0][1]["state"] if initial is None else initial, state_of, table),
        table=table,
        **seen | {name: value for name, value in declared.items() if value is not None},
    )


def first_states(
    given: Any, state_of: Callable[[str], Hashable], table: Mapping[tuple[int, Hashable], Any]
) -> tuple[tuple[float, Hashable], ...]:
    """Return (probability, state) pairs of the first state, or raise if one has no row at the first step."""
    chances = given if isinstance(given, dict) else {str(given): 1.0}
    first = tuple((probability, state_of(state)) for state, probability in chances.items())
    for _, state in first:
        if (0, state) not in table:
            raise ProblemError(f"initial names {state!r}, which no row has as its state at the first step")
    return first


def label_maker(rows: Sequence[tuple[str, dict[str, str]]], columns: Sequence[str]) -> Callable[[str], Hashable]:
    """Return the function that turns a cell into a label: a number if all cells of the columns are whole numbers."""
    if all(_WORD.fullmatch(cells[column]) for _, cells in rows for column in columns):
        return lambda cell: int(cell) if _WORD.fullmatch(cell) else cell
    return str
