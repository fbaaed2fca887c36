"""Monte Carlo on a Gymnasium environment.

A learned policy knows the states that were visited while learning. In any other state its own fallback decides (that of
the certified learner), or `unknown`: an error (`"raise"`), a random available action (`"random"`), or a function of the
user.

Policies from elsewhere are functions of the observation, functions of (step, state, actions), or have the method
`predict` of Stable-Baselines3. Behind a shield they may select any action: it replaces unsafe ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from peakrl.checks import check_count, required_arguments
from peakrl.errors import PeakError, PolicyError, SettingsError, TargetError, UnknownStateError
from peakrl.gym.adapter import LaneError, Lanes, Observed, Rules, Step, is_environment
from peakrl.policy.mixture import AnyPolicy, AveragedPolicy
from peakrl.policy.tables import Policy
from peakrl.problem import violation_of
from peakrl.spaces import UnnumberedActions
from peakrl.types import Floats

#: The action at a step in a state, given the available actions; or the action for an observation.
Rule = Callable[[int, Any, Sequence[Hashable]], Hashable] | Callable[[Any], Any]
#: The action at a step, for what is observed, given the available actions.
Decide = Callable[[int, Observed, Sequence[Hashable]], Any]
#: What to do in a state that the policy does not know.
Unknown = Literal["raise", "random"] | Rule
#: Streams of random numbers: resets of the environment, draws of the policy, draws in unknown states. A learner with
#: the same seed has others, so that no episode that it has seen is replayed.
RESETS, DRAWS, UNKNOWN_STATES = 0x72657365, 0x64726177, 0x756E6B6E


class Walk:
    """An episode in progress."""

    def __init__(self, number: int, decide: Decide) -> None:
        self.number, self.decide = number, decide
        self.step = 0
        self.seen: Observed | None = None


class Fallback:
    """Decides in states that the policy does not know, and counts how often."""

    def __init__(self, unknown: Unknown = "raise", seed: int = 0) -> None:
        if unknown not in ("raise", "random") and not callable(unknown):
            raise SettingsError(
                f'unknown must be "raise", "random" or a function (step, state, actions) -> action, not {unknown!r}'
            )
        self.uses = 0
        #: How often a shield replaced the action of the policy; None: there is no shield.
        self.replaced: int | None = None
        self._rule: Any = self._drawn if unknown == "random" else None if unknown == "raise" else unknown
        self._generator = np.random.default_rng(stream(seed, UNKNOWN_STATES))

    def decide(self, step: int, state: Any, actions: Sequence[Hashable], error: UnknownStateError) -> Hashable:
        """Return an action for a state that the policy does not know; raises `error` if there is no rule."""
        if self._rule is None:
            raise error
        self.uses += 1
        action: Hashable = self._rule(step, state, actions)
        return action

    def _drawn(self, step: int, state: Any, actions: Sequence[Hashable]) -> Hashable:
        return actions[int(self._generator.integers(len(actions)))]


def stream(seed: int, *purpose: int) -> np.random.SeedSequence:
    """Return the random numbers of a seed for a purpose."""
    return np.random.SeedSequence(seed, spawn_key=purpose)


def reset_seeds(seed: int, episodes: int) -> list[int]:
    """Return the seeds with which an environment is reset."""
    return [int(stream(seed, RESETS, episode).generate_state(1)[0]) for episode in range(episodes)]


def environment_episodes(
    env: Any, policy: AnyPolicy | Rule, episodes: int, seed: int, unknown: Unknown, steps: int | None = None
) -> tuple[Floats, Floats, int, Rules]:
    """Return rewards and violations of the episodes, the steps at which `unknown` decided, and the declarations."""
    fallback = Fallback(unknown, seed)
    lanes = lanes_of(env, steps)
    generator = np.random.default_rng(stream(seed, DRAWS))
    rewards, violations = followed_episodes(lanes, policy, reset_seeds(seed, episodes), generator, fallback=fallback)
    return rewards, violations, fallback.uses, lanes.rules


def followed_episodes(
    lanes: Lanes,
    policy: AnyPolicy | Rule,
    seeds: Sequence[int],
    generator: np.random.Generator,
    before: int = 0,
    fallback: Fallback | None = None,
    steps: list[tuple[Any, ...]] | None = None,
) -> tuple[Floats, Floats]:
    """Return the reward and the violation of an episode for each seed, in the order in which they start.

    `before` counts episodes that these lanes have played already, for messages. Every step is appended to `steps`:
    (step, state, action, reward, constraints, next state).
    """
    episodes, fallback = len(seeds), fallback or Fallback()
    rewards, violations = np.zeros(episodes), np.zeros(episodes)
    walks: list[Walk | None] = [None] * lanes.count
    lanes.rules.idle = idle_rule(lanes, policy, generator)
    started = done = 0
    try:
        while done < episodes:
            free = [place for place, walk in enumerate(walks) if walk is None][: episodes - started]
            for place in free:
                walks[place] = Walk(before + started, rule_for_episode(policy, generator))
                started += 1
            if free:
                begun = [seeds[walk.number - before] for walk in (walks[place] for place in free) if walk]
                for place, seen in zip(free, lanes.begin(free, begun), strict=True):
                    show(walks[place], seen)
            actions = [choose(lanes, walk, fallback) for walk in walks]
            for place, event in enumerate(lanes.advance(actions)):
                walk = walks[place]
                if isinstance(event, Observed):
                    show(walk, event)
                elif walk is not None and isinstance(event, Step):
                    if steps is not None and walk.seen is not None:
                        steps.append(record_of(lanes, walk.step, walk.seen, actions[place], event))
                    rewards[walk.number - before] += event.reward
                    violations[walk.number - before] += violation_of(event.constraints)
                    walk.step, walk.seen = walk.step + 1, event.following
                    if event.over or walk.step == lanes.rules.horizon:
                        walks[place] = None
                        done += 1
    except LaneError as error:
        fail(error, walks)
    return rewards, violations


def idle_rule(lanes: Lanes, policy: AnyPolicy | Rule, generator: np.random.Generator) -> Callable[[Observed], int]:
    """Return the rule of lanes without an episode: the action of the policy in a first state."""

    def decide(first: Observed) -> int:
        walk = Walk(0, rule_for_episode(policy, generator))
        walk.seen = first
        try:
            return choose(lanes, walk, Fallback()) or 0
        except UnknownStateError:
            return first.offer[0]

    return decide


def environment_rollout(
    env: Any, policy: AnyPolicy | Rule, seed: int, unknown: Unknown, length: int | None = None
) -> list[tuple[Any, ...]]:
    """Return (step, state, action, reward, constraints, next state) of the steps of one episode."""
    lanes, steps = lanes_of(env, length), list[tuple[Any, ...]]()
    if lanes.count > 1:
        raise TargetError("one episode is followed at a time: pass a single environment, not a vectorised one")
    generator, fallback = np.random.default_rng(stream(seed, DRAWS)), Fallback(unknown, seed)
    followed_episodes(lanes, policy, reset_seeds(seed, 1), generator, fallback=fallback, steps=steps)
    return steps


def record_of(lanes: Lanes, step: int, seen: Observed, index: int | None, event: Step) -> tuple[Any, ...]:
    """Return (step, state, action, reward, constraints, next state) of a step."""
    following = None if event.following is None else event.following.state
    actions = lanes.rules.actions
    action = index if isinstance(actions, UnnumberedActions) else actions.labels[index or 0]
    return step, seen.state, action, event.reward, event.constraints, following


def lanes_of(env: Any, steps: int | None = None) -> Lanes:
    """Return the lanes of an environment, with this number of steps if it has no end; raise if it is not one."""
    if not is_environment(env):
        raise TargetError(f"{env!r} cannot be simulated; give a Problem, a TabularModel or a Gymnasium environment")
    from peakrl.gym.constrained_env import adapt

    lanes = adapt(env, needs_range=False)
    if steps is not None:
        if lanes.rules.steps is not None:
            raise SettingsError(f"steps={steps!r} is for what has no end; here an episode has {lanes.rules.steps}")
        lanes.rules.steps = check_count(steps, "steps")
    return lanes


def rule_for_episode(policy: Any, generator: np.random.Generator) -> Decide:
    """Return the rule of one episode; a mixture draws one of its policies."""
    if isinstance(policy, AveragedPolicy):
        mixture, episode = policy, policy.reset(generator)
        return lambda step, seen, actions: mixture.action_in(episode, step, seen.state)
    if isinstance(policy, Policy):
        return lambda step, seen, actions: policy.action(step, seen.state, actions)
    if hasattr(policy, "action") and hasattr(policy, "reset"):
        policy.reset(generator)
        return lambda step, seen, actions: policy.action(step, seen.state)
    if hasattr(policy, "predict"):
        return predicted(policy.predict)
    if not callable(policy):
        raise PolicyError(
            f"{policy!r} is neither a policy, such as run.policy, nor a function observation -> action or "
            "(step, state, actions) -> action"
        )
    if required_arguments(policy) == 1:
        return lambda step, seen, actions: policy(seen.observation)
    return lambda step, seen, actions: policy(step, seen.state, actions)


def predicted(predict: Callable[..., Any]) -> Decide:
    """Return the rule of a model of Stable-Baselines3 for one episode; recurrent ones have a memory."""
    memory = None

    def decide(step: int, seen: Observed, actions: Sequence[Hashable]) -> Any:
        nonlocal memory
        action, memory = predict(seen.observation, memory, deterministic=True)
        return action

    return decide


def show(walk: Walk | None, seen: Observed | None) -> None:
    """Set the first state of an episode."""
    if walk is not None:
        walk.seen = seen


def choose(lanes: Lanes, walk: Walk | None, fallback: Fallback) -> int | None:
    """Return the index of the action that the policy takes."""
    if walk is None or walk.seen is None:
        return None
    action = asked(lanes, walk, walk.seen, fallback)
    index = lanes.rules.actions.index(action)
    if isinstance(lanes.rules.actions, UnnumberedActions):
        return index
    available = index in walk.seen.offer
    if walk.seen.shielded and index >= 0:
        fallback.replaced = (fallback.replaced or 0) + (not available)
    elif not available:
        raise PolicyError(
            f"episode {walk.number + 1}, step {walk.step}: the policy takes {action!r} in state {walk.seen.state!r}, "
            "where the environment does not offer it"
        )
    return index


def asked(lanes: Lanes, walk: Walk, seen: Observed, fallback: Fallback) -> Any:
    """Return the action of the policy; add step and state to the errors of a user's function."""
    labels = lanes.rules.actions.labels
    actions = tuple(labels[index] for index in seen.offer) if labels else ()
    try:
        try:
            return walk.decide(walk.step, seen, actions)
        except UnknownStateError as error:
            return fallback.decide(walk.step, seen.state, actions, error)
    except PeakError:
        raise
    except Exception as error:
        where = f"episode {walk.number + 1}, step {walk.step}, state {seen.state!r}, actions {actions!r}"
        error.add_note(f"the policy raised this in {where}")
        raise


def fail(error: LaneError, walks: list[Walk | None]) -> NoReturn:
    """Raise an error with its episode and step."""
    walk = walks[error.lane] if error.lane is not None else next(filter(None, walks), None)
    where = "" if walk is None else f"episode {walk.number + 1}, step {walk.step}: "
    raise TargetError(f"{where}{error}") from (error.__cause__ if not isinstance(error.__cause__, PeakError) else None)
