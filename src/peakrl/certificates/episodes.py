"""Fresh episodes of any policy, on a model or an environment, with the bounds that are known before the first one.

They have their own random stream: an episode from which a policy was learned or selected would not be fresh.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.certificates.certificate import Evidence
from peakrl.errors import PolicyError, TargetError
from peakrl.evaluation.environments import Fallback, Unknown, followed_episodes
from peakrl.evaluation.rollouts import walk
from peakrl.evaluation.simulation import largest_violation, model_episodes, return_range
from peakrl.gym.adapter import Rules, episode_seed, is_environment
from peakrl.numerics import added
from peakrl.policy.export import Exported
from peakrl.policy.mixture import AnyPolicy, model_for
from peakrl.policy.tables import Policy
from peakrl.records import Record
from peakrl.sampling import Words, seed_state
from peakrl.tabular import TabularModel
from peakrl.types import Floats

Part = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def model_evidence(model: TabularModel) -> Part:
    """Return the numbers of a model that its digest covers; names of states are not included."""
    plain = {
        "name": model.name,
        "digest": model.digest,
        "horizon": model.steps,
        "stationary": bool(model.stationary),
        "stride": int(model.payoffs.stride),
        "constraint_names": list(model.constraint_names),
        "constraint_bounds": [float(bound) for bound in model.constraint_bounds],
        "constraint_tolerances": [float(tolerance) for tolerance in model.constraint_tolerances],
        "reward_range": [float(end) for end in model.reward_range],
    }
    return plain, {f"model.{name}": array for name, array in model.meaning().items()}


def policy_evidence(policy: AnyPolicy) -> Part:
    """Return the decisions of a policy, by index."""
    stored = policy._stored()
    if isinstance(policy, Policy):  # `verify` reads rows only
        stored = Record({"form": "deterministic"}, {"rows": policy.rows})
    return {"policy": stored.plain}, {f"policy.{name}": array for name, array in stored.arrays.items()}


#: A policy from elsewhere: which of the available actions to take; on environments also a function of the observation.
AnyRule = Callable[..., Any]
#: Separates these episodes from those of a learner or a simulation with the same seed.
STREAM = 0x6365727469667900


class Episodes:
    """A source of fresh episodes."""

    def __init__(
        self,
        target: TabularModel | Rules,
        policy: AnyPolicy | AnyRule,
        seed: int,
        bounds: tuple[float, ...] | None,
        tolerances: tuple[float, ...],
    ) -> None:
        self._policy, self._seed = policy, seed
        #: None for environments.
        self.model = target if isinstance(target, TabularModel) else None
        self.horizon, self.subject = target.horizon, name_of(policy, target.name)
        #: The least and the largest return of an episode, and its largest violation: infinite if not declared.
        self.low, self.high = return_range(target.horizon, target.reward_range, may_end_early=self.model is None)
        self.most_violation = largest_violation(target.horizon, bounds)
        self._plain = {
            "name": target.name,
            "horizon": target.horizon,
            "reward_range": [float(end) for end in target.reward_range],
            "constraint_bounds": None if bounds is None else [float(bound) for bound in bounds],
            "constraint_tolerances": [float(tolerance) for tolerance in tolerances],
            "digest": None if self.model is None else self.model.digest,
            "decides": "table"
            if isinstance(policy, Exported)
            else "predict"
            if hasattr(policy, "predict")
            else "function",
            "may_end_early": self.model is None,
            "seed": str(seed),
        }

    def more(self, count: int) -> tuple[Floats, Floats]:
        """Return the returns and violations of so many further episodes, in the order in which they started."""
        raise NotImplementedError

    def interventions(self) -> dict[str, Any]:
        """Return how often something else than the policy decided: in states that it does not know, and a shield."""
        return {"unvisited": None, "unvisited_steps": 0, "replaced_steps": None}

    def evidence(self, returns: Floats, violations: Floats, optimum: str) -> Evidence:
        """Return the numbers from which the bounds can be recomputed."""
        plain = self._plain | self.interventions() | {"optimum": optimum}
        arrays = {"returns": returns, "violations": violations}
        if optimum == "solved" and self.model is not None:
            model, tables = model_evidence(self.model)
            return Evidence(plain | {"model": model}, arrays | tables)
        return Evidence(plain, arrays)


def stream_of(seed: int, part: int = 0) -> int:
    """Return the seed of a part of the episodes of a user's seed."""
    return int(np.random.SeedSequence((STREAM, seed, part)).generate_state(1, np.uint64)[0])


# On a model -----------------------------------------------------------------------------------------------------------


class ModelEpisodes(Episodes):
    """Episodes on a model."""

    def __init__(self, model: TabularModel, policy: AnyPolicy | AnyRule, seed: int) -> None:
        if isinstance(policy, Exported) or not callable(policy):
            model_for(model, policy)  # raises for anything else
        super().__init__(model, policy, seed, model.constraint_bounds, model.constraint_tolerances)
        self._model, self._part = model, 0

    def more(self, count: int) -> tuple[Floats, Floats]:
        """Return the returns and violations of so many further episodes."""
        seed = stream_of(self._seed, self._part)
        self._part += 1
        if isinstance(self._policy, Exported):
            return model_episodes(self._model, self._policy, count, seed)
        words = seed_state(np.uint64(seed))
        paid = np.array([followed(self._model, self._policy, words) for _ in range(count)])
        return paid[:, 0].copy(), paid[:, 1].copy()


def followed(model: TabularModel, rule: AnyRule, words: Words) -> tuple[float, float]:
    """Return the return and the violation of one episode in which a function decides."""

    def choose(step: int, slot: int) -> int:
        state = model.state_of_slot(slot)
        actions = tuple(model.action_of_row(row) for row in model.rows_of_slot(slot))
        return model.row_of(step, state, ask(rule, step, state, actions))

    steps = walk(model, model.layout, words, choose)
    return added(step.reward for step in steps), added(step.violation for step in steps)


def ask(rule: AnyRule, step: int, state: Any, actions: Sequence[Hashable]) -> Hashable:
    """Return the action of a function; add step and state to its errors."""
    try:
        action: Hashable = rule(step, state, actions)
        return action
    except Exception as error:  # of user code: add where it happened
        error.add_note(f"the policy raised this for step {step}, state {state!r}, actions {actions!r}")
        raise


def decided(rule: AnyRule, step: int, state: Any, actions: Sequence[Hashable]) -> Hashable:
    """Return the action of a function that is a table; a random one is refused."""
    first, second = (ask(rule, step, state, actions) for _ in range(2))
    if first != second:
        raise PolicyError(
            f"called twice at step {step} in state {state!r} the policy takes {first!r} and {second!r}: a random "
            "function has no exact value and no bounds from a log; pass episodes= to sample it"
        )
    return first


def as_policy(model: TabularModel, policy: AnyPolicy | AnyRule) -> AnyPolicy:
    """Return a policy as it is, or the table of a function; a random function is refused."""
    if isinstance(policy, Exported) or not callable(policy):
        model_for(model, policy)  # raises for anything else
        return policy

    def decide(step: int, state: Hashable) -> Hashable:
        rows = model.rows_of_slot(model.slot_of(step, state))
        return decided(policy, step, state, tuple(model.action_of_row(row) for row in rows))

    return Policy.from_rule(model, decide)


def name_of(policy: Any, where: str | None = None) -> str:
    """Return the name of a policy and of its target."""
    if isinstance(policy, Exported):
        return f"{type(policy).__name__} on {where or policy.model.name}"
    return f"{getattr(policy, '__name__', type(policy).__name__)} on {where}"


# On an environment ----------------------------------------------------------------------------------------------------


class EnvironmentEpisodes(Episodes):
    """Episodes on a Gymnasium environment, which may be vectorised."""

    def __init__(self, env: Any, policy: AnyPolicy | AnyRule, seed: int, unknown: Unknown = "raise") -> None:
        if not is_environment(env):
            raise TargetError(f"{env!r} cannot be certified on; give a Problem, a TabularModel or an environment")
        from peakrl.gym.constrained_env import adapt

        self._lanes, self._done = adapt(env), 0
        rules = self._lanes.rules
        super().__init__(rules, policy, seed, rules.constraints.bounds, rules.constraints.tolerances or ())
        self._generator = np.random.default_rng(stream_of(seed))
        self._unknown = unknown if isinstance(unknown, str) else "function"
        self._fallback = Fallback(unknown, stream_of(seed, 2))

    def more(self, count: int) -> tuple[Floats, Floats]:
        """Return the returns and violations of so many further episodes, in the order in which they started."""
        begin, seed = self._done, stream_of(self._seed, 1)
        self._done += count
        seeds = [episode_seed(seed, begin + number) for number in range(count)]
        return followed_episodes(self._lanes, self._policy, seeds, self._generator, begin, self._fallback)

    def interventions(self) -> dict[str, Any]:
        """Return how often something else than the policy decided: in states that it does not know, and a shield."""
        fallback = self._fallback
        return {"unvisited": self._unknown, "unvisited_steps": fallback.uses, "replaced_steps": fallback.replaced}
