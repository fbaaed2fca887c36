"""Fresh episodes of any policy, on a model or an environment, and what is known of them before the first is drawn.

They come from a stream of their own: an episode that a policy was learned or chosen from would not be fresh.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from peakrl.certificates.certificate import Evidence
from peakrl.checks import ROUNDING
from peakrl.errors import PolicyError, TargetError
from peakrl.evaluation.environments import Fallback, Unknown, followed_episodes
from peakrl.evaluation.simulation import largest_violation, model_episodes
from peakrl.gym.adapter import episode_seed, is_environment
from peakrl.gym.targets import adapt
from peakrl.policy.export import Exported
from peakrl.policy.mixture import AnyPolicy, model_for
from peakrl.policy.tables import Policy
from peakrl.sampling import Words, draw_first, draw_outcome, seed_state
from peakrl.tabular import TabularModel
from peakrl.types import Floats

Part = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def model_evidence(model: TabularModel) -> Part:
    """Return the numbers of a model, those that its digest is made of; what states are called is no part of them."""
    plain = {
        "name": model.name,
        "digest": model.digest,
        "horizon": int(model.horizon),
        "stationary": bool(model.stationary),
        "stride": int(model.payoffs.stride),
        "constraint_names": list(model.constraint_names),
        "constraint_bounds": [float(bound) for bound in model.constraint_bounds],
        "reward_range": [float(end) for end in model.reward_range],
    }
    return plain, {f"model.{name}": array for name, array in model.meaning().items()}


def policy_evidence(policy: AnyPolicy) -> Part:
    """Return the decisions of a policy, by number."""
    plain, arrays = policy._stored()
    if isinstance(policy, Policy):  # whatever is smaller in a file: who verifies knows rows only
        plain, arrays = {"form": "deterministic"}, {"rows": policy.rows}
    return {"policy": plain}, {f"policy.{name}": array for name, array in arrays.items()}


#: A policy from elsewhere: which of the actions on offer to take.
AnyRule = Callable[[int, Any, Sequence[Hashable]], Hashable]
#: Keeps these episodes apart from those that a learner or a simulation draws from the same seed.
STREAM = 0x6365727469667900


class Episodes(Protocol):
    """Where fresh episodes come from."""

    horizon: int
    #: The least and the largest return of an episode, and its largest violation: infinite where nobody declared it.
    low: float
    high: float
    most_violation: float
    #: None where there is none.
    model: TabularModel | None
    subject: str

    def more(self, count: int) -> tuple[Floats, Floats]:
        """Return the returns and violations of so many further episodes, in the order in which they started."""
        ...

    def rests_on(self, optimum: str | None) -> tuple[str, ...]:
        """Return what must be true for bounds from these episodes to be."""
        ...

    def evidence(self, returns: Floats, violations: Floats, optimum: str) -> Evidence:
        """Return what the bounds can be computed from again."""
        ...


def stream_of(seed: int, part: int = 0) -> int:
    """Return the seed of a part of the episodes that a user's seed stands for."""
    return int(np.random.SeedSequence((STREAM, seed, part)).generate_state(1, np.uint64)[0])


def ends(horizon: int, reward_range: tuple[float, float], may_end_early: bool) -> tuple[float, float]:
    """Return the least and the largest return; rewards may pass their range by rounding, as they are checked."""
    low, high = reward_range
    room = ROUNDING * max(1.0, abs(low), abs(high))
    if may_end_early:  # steps that are not taken earn nothing
        low, high = min(low, 0.0), max(high, 0.0)
    return horizon * (low - room), horizon * (high + room)


def same_for_all(what: str) -> tuple[str, ...]:
    """Return what every bound from episodes rests on."""
    return (
        "the policy was fixed before these episodes, does not change while it is followed, and was not picked by this "
        "certificate: another one has a failure probability of its own",
        what,
    )


# On a model -----------------------------------------------------------------------------------------------------------


class ModelEpisodes:
    """Episodes on a model."""

    def __init__(self, model: TabularModel, policy: AnyPolicy | AnyRule, seed: int) -> None:
        self.model: TabularModel | None = model
        self._model, self._policy, self._seed, self._part = model, policy, seed, 0
        if isinstance(policy, Exported) or not callable(policy):
            model_for(model, policy)  # which says what is wrong with anything else
        self.horizon, self.subject = model.horizon, name_of(policy, model.name)
        self.low, self.high = ends(model.horizon, model.reward_range, may_end_early=False)
        self.most_violation = largest_violation(model.horizon, model.constraint_bounds)

    def more(self, count: int) -> tuple[Floats, Floats]:
        """Return the returns and violations of so many further episodes."""
        seed = stream_of(self._seed, self._part)
        self._part += 1
        if isinstance(self._policy, Exported):
            return model_episodes(self._model, self._policy, count, seed)
        words = seed_state(np.uint64(seed))
        paid = np.array([followed(self._model, self._policy, words) for _ in range(count)])
        return paid[:, 0].copy(), paid[:, 1].copy()

    def rests_on(self, optimum: str | None) -> tuple[str, ...]:
        """Return what must be true for bounds from these episodes to be."""
        name = f"the system behaves as the model {self._model.name!r} says (digest {self._model.digest})"
        return (*same_for_all(name), *filter(None, [optimum]))

    def evidence(self, returns: Floats, violations: Floats, optimum: str) -> Evidence:
        """Return what the bounds can be computed from again."""
        plain, arrays = model_evidence(self._model)
        told = {
            "name": self._model.name,
            "horizon": self.horizon,
            "reward_range": plain["reward_range"],
            "constraint_bounds": plain["constraint_bounds"],
            "may_end_early": False,
            "seed": str(self._seed),
            "optimum": optimum,
        }
        drawn = {"returns": returns, "violations": violations}
        if optimum != "solved":
            return Evidence(told, drawn)
        return Evidence(told | {"model": plain}, drawn | arrays)


def followed(model: TabularModel, rule: AnyRule, words: Words) -> tuple[float, float]:
    """Return the return and the violation of one episode in which a function decides."""
    layout, payoffs = model.layout, model.payoffs
    slot, earned, violated = int(draw_first(words, model.sampler)), 0.0, 0.0
    for step in range(model.horizon):
        state = model.state_of_slot(slot)
        actions = tuple(model.action_of_row(row) for row in model.rows_of_slot(slot))
        row = model.row_of(step, state, ask(rule, step, state, actions))
        law = int(layout.row_distribution[row])
        outcome = int(draw_outcome(words, layout, model.sampler, law))
        record = int(payoffs.row_payoff[row]) + payoffs.stride * (outcome - int(layout.outcome_start[law]))
        earned += float(payoffs.reward[record])
        violated += float(np.maximum(-payoffs.constraints[record], 0.0).sum())
        slot = int(layout.outcome_next[outcome])
    return earned, violated


def ask(rule: AnyRule, step: int, state: Any, actions: Sequence[Hashable]) -> Hashable:
    """Return what a function decides; what it raises is told with where it was asked."""
    try:
        return rule(step, state, actions)
    except Exception as error:  # of the user's own code: theirs to read, and we know where it happened
        error.add_note(f"the policy raised this for step {step}, state {state!r}, actions {actions!r}")
        raise


def as_policy(model: TabularModel, policy: AnyPolicy | AnyRule) -> AnyPolicy:
    """Return a policy of ours as it is, and the table of a function; one that draws at random is refused."""
    if isinstance(policy, Exported) or not callable(policy):
        model_for(model, policy)  # which says what is wrong with anything else
        return policy

    def decide(step: int, state: Hashable) -> Hashable:
        rows = model.rows_of_slot(model.slot_of(step, state))
        actions = tuple(model.action_of_row(row) for row in rows)
        first, second = (ask(policy, step, state, actions) for _ in range(2))
        if first != second:
            raise PolicyError(
                f"asked twice at step {step} in state {state!r} the policy takes {first!r} and {second!r}: a function "
                "that draws at random has no exact figures; pass episodes= to sample it"
            )
        return first

    return Policy.from_rule(model, decide)


def name_of(policy: Any, where: str | None = None) -> str:
    """Return what to call a policy, and where it is followed."""
    if isinstance(policy, Exported):
        return f"{type(policy).__name__} on {where or policy.model.name}"
    return f"{getattr(policy, '__name__', type(policy).__name__)} on {where}"


# On an environment ----------------------------------------------------------------------------------------------------


class EnvironmentEpisodes:
    """Episodes on a Gymnasium environment, which may be vectorised."""

    def __init__(
        self,
        env: Any,
        policy: AnyPolicy | AnyRule,
        seed: int,
        declared: Mapping[str, Any],
        unknown: Unknown = "raise",
    ) -> None:
        if not is_environment(env):
            raise TargetError(f"{env!r} cannot be certified on; give a Problem, a TabularModel or an environment")
        self.model: TabularModel | None = None
        self._lanes, self._policy, self._seed, self._done = adapt(env, **declared), policy, seed, 0
        self._generator = np.random.default_rng(stream_of(seed))
        self._unknown, self._fallback = unknown, Fallback(unknown, stream_of(seed, 2))
        rules = self._lanes.rules
        self.horizon, self.subject = rules.horizon, name_of(policy, rules.name)
        self.low, self.high = ends(rules.horizon, rules.reward_range, may_end_early=True)
        self.most_violation = largest_violation(rules.horizon, rules.constraints.bounds)

    def more(self, count: int) -> tuple[Floats, Floats]:
        """Return the returns and violations of so many further episodes, in the order in which they started."""
        begin, seed = self._done, stream_of(self._seed, 1)
        self._done += count
        seeds = [episode_seed(seed, begin + number) for number in range(count)]
        return followed_episodes(self._lanes, self._policy, seeds, self._generator, begin, self._fallback)

    def rests_on(self, optimum: str | None) -> tuple[str, ...]:
        """Return what must be true for bounds from these episodes to be."""
        rules, bounds = self._lanes.rules, self._lanes.rules.constraints.bounds
        low, high = rules.reward_range
        episodes = (
            f"episodes of {rules.name} are independent and alike: it does not drift, and each reset starts afresh"
        )
        rewards = f"a reward lies in [{low:g}, {high:g}] and an episode has at most {rules.horizon} steps, as declared"
        limits, forgiven = None, None
        if bounds:
            limits = f"|constraint| is at most {', '.join(f'{bound:g}' for bound in bounds)}, as declared"
        if any(rules.constraints.tolerances or ()):
            rooms = ", ".join(f"{room:g}" for room in rules.constraints.tolerances or ())
            forgiven = f"a constraint counts as met down to {rooms} below 0, as declared"
        best = "nothing is known of the optimum but the most that an episode can earn"
        return (*same_for_all(episodes), rewards, *filter(None, [limits, forgiven, self._filled()]), optimum or best)

    def _filled(self) -> str | None:
        """Return what is done in states of which the policy knows nothing, where that has come up."""
        if not self._fallback.uses:
            return None
        how = "an action on offer is drawn at random" if self._unknown == "random" else "the function given decides"
        return f"in a state that learning never met {how}: that was so at {self._fallback.uses:,} steps"

    def evidence(self, returns: Floats, violations: Floats, optimum: str) -> Evidence:
        """Return what the bounds can be computed from again."""
        rules = self._lanes.rules
        bounds = rules.constraints.bounds
        told = {
            "name": rules.name,
            "horizon": rules.horizon,
            "reward_range": [float(end) for end in rules.reward_range],
            "constraint_bounds": None if bounds is None else [float(bound) for bound in bounds],
            "may_end_early": True,
            "seed": str(self._seed),
            "optimum": optimum,
        }
        return Evidence(told, {"returns": returns, "violations": violations})
