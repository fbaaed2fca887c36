"""An environment as data, for problem files and sweeps.

    [problem]
    kind = "gymnasium"
    id = "FrozenLake-v1"                  # id and arguments of `gymnasium.make`
    arguments = { is_slippery = false }
    constraint = "lake.py:holes"          # a function of the transition
    horizon = 8                           # default: the environment's time limit

These and `reward_range`, `constraint_bounds`, `constraint_tolerances` and `constraint_names` are those of
`ConstrainedEnv`; `states` is the number of states. An `id` such as "mine.py:make" is a user function that returns an
environment; "module:Name-v0" imports the module, which registers the name. Both run code, as does `constraint`, and as
may any text with a colon in `arguments`.

If an environment has a transition table (`env.unwrapped.P`) that covers its constraints, missing declarations are taken
from the table, and policies are evaluated exactly on it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from peakrl.checks import check_fraction
from peakrl.compile import compile_model
from peakrl.errors import ProblemError
from peakrl.gym.adapter import is_environment
from peakrl.gym.transition_table import from_gymnasium
from peakrl.problem import Problem
from peakrl.specs.registry import kinds, unknown_key
from peakrl.specs.spec import ProblemSpec, as_plain
from peakrl.specs.user_code import having_imported, is_name, load_named, running, source_digest
from peakrl.tabular import TabularModel

KIND = "gymnasium"
#: Further kinds of targets that are no problems: what makes them from a table.
TARGETS: dict[str, Callable[[Mapping[str, Any]], EnvironmentSpec]] = {}
#: Arguments of `ConstrainedEnv`, beside the constraint function.
DECLARED = ("horizon", "reward_range", "constraint_bounds", "constraint_tolerances", "constraint_names")
PARAMETERS = ("id", "arguments", "constraint", *DECLARED, "states", "discount")


@dataclass(frozen=True)
class LearningTarget:
    """The target of a description."""

    #: A model, or a `ConstrainedEnv`.
    subject: Any
    #: Model for exact evaluation; None for environments without a transition table.
    table: TabularModel | None

    @property
    def is_environment(self) -> bool:
        """Is the target an environment?"""
        return self.subject is not self.table


@dataclass(frozen=True)
class EnvironmentSpec:
    """An environment as data; names are checked at once, values when the environment is created."""

    parameters: Mapping[str, Any]
    kind: ClassVar[str] = KIND
    #: The learner of a file that names none; None: the usual one.
    learner: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        given = as_plain(self.parameters, "")
        for name in given:
            if name not in PARAMETERS:
                raise ProblemError(unknown_key(name, name, list(PARAMETERS)))
        if "id" not in given:
            raise ProblemError(
                'id is missing; it must be the id of a Gymnasium environment, or a function ("mine.py:make")'
            )
        for name in ("id", "constraint"):
            if not isinstance(given.get(name, ""), str):
                raise ProblemError(f"{name} is {given[name]!r}; it must be a text")
        if "discount" in given:
            check_fraction(given["discount"], "discount", error=ProblemError)
        arguments = given.get("arguments", {})
        if not isinstance(arguments, Mapping):
            raise ProblemError(f"arguments is {arguments!r}; it must be a table of values by name")
        if "trust" in arguments:
            raise ProblemError("arguments.trust: a file cannot grant trust; use --trust on the command line")
        object.__setattr__(self, "parameters", given)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EnvironmentSpec:
        """Return the specification of {"kind": "gymnasium", parameters}."""
        return cls({name: value for name, value in values.items() if name != "kind"})

    def as_dict(self) -> dict[str, Any]:
        """Return {"kind": ..., parameters}, for `from_dict`."""
        return {"kind": self.kind, **self.parameters}

    def with_parameters(self, changes: Mapping[str, Any]) -> EnvironmentSpec:
        """Return the environment with changed parameters."""
        return type(self)({**self.parameters, **changes})

    def code(self, where: str) -> list[tuple[str, Any]]:
        """Return the code that it runs, each with its key; `where` is the key of its table in the file."""
        named = {name: self.parameters.get(name) for name in ("id", "constraint", "arguments")}
        return [(f"{where}.{place}", text) for place, text in texts(named) if is_name(text)]

    def source_digests(self, folder: Path) -> dict[str, str]:
        """Return the digests of the source files that it names, by purpose."""
        sources = {"source": ("constraint", self.parameters.get("constraint"))}
        if is_name(self.parameters["id"]) and self.parameters["id"].rpartition(":")[2].isidentifier():
            sources["environment source"] = ("id", self.parameters["id"])
        found = {name: source_digest(code, folder, what) for name, (what, code) in sources.items() if code is not None}
        return {name: digest for name, digest in found.items() if digest is not None}

    def open(self, folder: str | Path = ".", *, progress: bool = False) -> LearningTarget:
        """Return the environment with its declarations and its table; files are relative to `folder`."""
        env, constraint = self._made(Path(folder))
        table = self._table(env, constraint, progress=progress) if self._has_table(env, constraint) else None
        return self._target(env, constraint, table)

    def open_again(self, folder: str | Path, table: TabularModel | None) -> LearningTarget:
        """Return a new environment with a known table."""
        return self._target(*self._made(Path(folder)), table)

    def _target(self, env: Any, constraint: Any, table: TabularModel | None) -> LearningTarget:
        declared = {name: self.parameters[name] for name in DECLARED if name in self.parameters}
        declared |= {"horizon": self._horizon} if "horizon" in declared else {}
        if constraint is not None:
            declared["constraint"] = constraint
        if table is not None:
            ranges = {name: getattr(table, name) for name in ("reward_range", "constraint_bounds")}
            declared = ({} if table.steps is None else {"horizon": table.steps}) | ranges | declared
        own = env.metadata.get("peakrl", {})
        if "discount" in self.parameters and own.get("horizon", getattr(env.spec, "max_episode_steps", None)) is None:
            declared = {"horizon": math.inf} | declared
        if "states" in self.parameters:
            env.metadata = {**env.metadata, "peakrl": {**own, "states": self.parameters["states"]}}
        from peakrl.gym.constrained_env import ConstrainedEnv

        return LearningTarget(ConstrainedEnv(env, **declared), table)

    def build(self, folder: str | Path = ".") -> Problem:
        """Return its transition table as a problem; raise if it has none."""
        return self._problem(*self._made(Path(folder)))

    def compile(self, folder: str | Path = ".", *, progress: bool = False) -> TabularModel:
        """Return its compiled transition table."""
        return self._table(*self._made(Path(folder)), progress=progress)

    def _table(self, env: Any, constraint: Any, *, progress: bool) -> TabularModel:
        with running("constraint"):
            return compile_model(self._problem(env, constraint), progress=progress)

    def _problem(self, env: Any, constraint: Any) -> Problem:
        # With a discount the states after the horizon matter too.
        horizon = math.inf if "discount" in self.parameters else self._horizon
        problem = from_gymnasium(env, horizon=horizon, constraint=constraint)
        if "constraint_tolerances" in self.parameters:
            problem.constraint_tolerances = self.parameters["constraint_tolerances"]
        return problem

    @property
    def _horizon(self) -> float | None:
        """The horizon in the file, infinite without an end; None if it is that of the environment."""
        if "horizon" not in self.parameters:
            return None
        return math.inf if self.parameters["horizon"] is None else self.parameters["horizon"]

    def _has_table(self, env: Any, constraint: Any) -> bool:
        """Does the environment have a transition table that covers its constraints?"""
        if not isinstance(getattr(getattr(env, "unwrapped", env), "P", None), Mapping):
            return False
        return constraint is not None or not reports_constraints(env)

    def _made(self, folder: Path) -> tuple[Any, Any]:
        """Return the environment and its constraint function."""
        named, arguments, constraint = self.parameters["id"], self.parameters.get("arguments", {}), None
        module, _, name = named.rpartition(":")
        if not is_name(named):
            env = registered(named, arguments)
        elif not name.isidentifier():  # "module:Name-v0": the module registers the name
            with having_imported(module, folder, f"id {named!r}"):
                env = registered(name, arguments)
        else:
            make = load_named(named, folder, "id")
            with running(f"id {named!r}"):
                env = make(**arguments)
            if not is_environment(env):
                raise ProblemError(f"id: {named!r} returned {env!r}; it must return a Gymnasium environment")
        if "constraint" in self.parameters:
            constraint = load_named(self.parameters["constraint"], folder, "constraint")
        return env, constraint


def described_target(values: Any) -> ProblemSpec | EnvironmentSpec:
    """Return the problem or environment of a table with a kind."""
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if kind == KIND:
        return EnvironmentSpec.from_dict(values)
    if kind in TARGETS:
        return TARGETS[kind](values)
    if isinstance(kind, str) and ":" not in kind and kind not in kinds():
        raise ProblemError(f"kind is {kind!r}; it must be one of {', '.join((*kinds(), KIND, *TARGETS))}")
    return ProblemSpec.from_dict(values)


def registered(name: str, arguments: Mapping[str, Any]) -> Any:
    """Return a registered environment."""
    import gymnasium

    with running(f"id: gymnasium cannot make {name!r}: it"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Overriding environment")  # user modules are imported again each time
        return gymnasium.make(name, **arguments)


def reports_constraints(env: Any) -> bool:
    """Does a step of an environment with a table report constraints?"""
    with running("id: the environment, at its first step,"):
        state = env.reset(seed=0)[0]
        info = env.step(next(iter(env.unwrapped.P[int(state)])))[4]
    return "constraints" in info or "cost" in info


def texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in plain data, with its key."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts(item, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts(item, f"{place}[{index}]")
