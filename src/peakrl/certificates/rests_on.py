"""What a certificate rests on, a sentence each: written from its evidence, by what makes one and by `verify` alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Plain = Mapping[str, Any]
#: The origin of the bound on the optimum.
OPTIMUM = {
    "solved": "the optimum was computed by backward induction over all states of the model",
    "residual": "no safe policy earns more, by the Bellman inequality for every state and action of the model",
    "most reward": "the optimum was not computed: the largest possible return is used instead",
}
#: How a policy became a table of the model.
TABLES = {
    "policy": (),
    "function": ("the function is deterministic: it was called twice for each step and state",),
    "filled": (
        "in a state that was not visited while learning the policy draws an available action, each equally likely",
    ),
    "completed": ("in a state that was not visited while learning the policy takes the first available action",),
}
#: What is assumed of a policy, by what decides.
REMEMBERS = "remembers nothing of an episode in the next"
DECIDES = {
    "table": (),
    "function": (f"the policy {REMEMBERS}",),
    "predict": (f"the policy, which is predict(observation, deterministic=True), {REMEMBERS}",),
}
#: What each declaration of `Assumptions` means; `{}` is its value.
DECLARED = {
    "shared_transitions": "pairs of one group share the distribution of the next state",
    "constraint_depends_on": "constraints depend on nothing but the {}",
    "rewards": "the rewards",
    "max_reward": "no step without a violation earns more than {}",
    "deterministic": "nothing is random",
    "support": "every possible outcome is in the support; the best policy is among those that are safe by it",
    "safe_policy": "the safe policy is safe; the best policy is among those safe by it and the support",
    "constraints": "the constraints of each step, state and action",
    "dynamics": "how the next state follows from state, action and independent, identically drawn noise",
}


def on_model(plain: Plain, rounding: float) -> Iterator[str]:
    """Yield what an exact certificate rests on."""
    model = plain["model"]
    yield behaves(model["name"], model["digest"])
    yield from forgiven(model["constraint_tolerances"])
    yield OPTIMUM[plain["optimum"]]
    yield f"numbers are exact up to rounding: a gap of at most {rounding:.1e} counts as 0"
    yield from TABLES[plain["table"]]


def on_target(states: int) -> Iterator[str]:
    """Yield what is reached, if anything is."""
    if states:
        yield f"the value is the probability of reaching one of {states:,} states, until which constraints must hold"


def on_episodes(plain: Plain) -> Iterator[str]:
    """Yield what bounds from fresh episodes rest on."""
    yield (
        "the policy was fixed before these episodes, does not change while it is followed, and was not selected by "
        "this certificate: another one has its own failure probability"
    )
    if plain["digest"] is None:
        yield f"episodes of {plain['name']!r} are independent and identically distributed"
    else:
        yield behaves(plain["name"], plain["digest"])
    low, high = plain["reward_range"]
    yield f"a reward lies in [{low:g}, {high:g}] and an episode has at most {plain['horizon']} steps, as declared"
    yield from limits(plain["constraint_bounds"])
    yield from forgiven(plain["constraint_tolerances"])
    if plain["unvisited_steps"]:
        drawn = plain["unvisited"] == "random"
        how = "an available action is drawn at random" if drawn else "the function given decides"
        yield f"in a state that was not visited while learning {how}: {plain['unvisited_steps']:,} steps"
    yield from DECIDES[plain["decides"]]
    if plain["replaced_steps"] is not None:
        yield (
            f"the policy acts behind a shield, which replaced its action at {plain['replaced_steps']:,} steps: nothing "
            "is claimed of the policy without it"
        )
    yield OPTIMUM[plain["optimum"]]


def on_learning(plain: Plain) -> Iterator[str]:
    """Yield what the certificate of a learner that stops by itself rests on."""
    name, horizon, size = plain["name"], plain["horizon"], max(map(abs, plain["reward_range"]))
    low, high = (end if abs(end) > 1e-8 * size else 0.0 for end in plain["reward_range"])  # not widened by rounding
    yield "episodes are independent, and what follows depends on nothing but step, state and action"
    yield f"rewards of {name!r} lie between {low:g} and {high:g}, and an episode has at most {horizon} steps"
    yield from limits(plain["constraint_bounds"])
    yield from forgiven(plain["constraint_tolerances"])
    yield "some policy satisfies every constraint; otherwise only the bound on the violation holds"
    yield "one failure probability covers one run: of several runs, not the luckiest"
    if plain["stationary"]:
        yield "dynamics, rewards and constraints do not depend on the step"
    if plain["growing"]:
        yield from on_environment(plain)
    else:
        yield f"states and actions of {name!r}"
    values = plain["declared"] | {"max_reward": plain["max_reward"]}
    for declared in plain["declared"]:
        yield f"declared: {DECLARED[declared].format(values[declared])}"


def on_environment(plain: Plain) -> Iterator[str]:
    """Yield what it rests on if states are discovered while learning."""
    where = "" if plain["stationary"] else " at a step"
    yield "observations are states (the process is Markov), and resets are independent"
    if plain["aliased"]:
        yield "cells are treated as states, which they are not: the bounds are wrong by what a cell hides"
    if plain["states"] is None:
        yield "the number of states is not bounded"
    else:
        yield f"there are at most {plain['states']:,} states{where}"
    if not plain["reward_range"][0] <= 0.0 <= plain["max_reward"]:
        yield f"no episode ends before its {plain['horizon']} steps: the steps left out would earn 0"
    if plain.get("given"):  # a log: the policy is known in every state
        return
    known = plain["declared"].get("constraint_depends_on") in ("action", "pair")
    limited = {"support", "constraints", "safe_policy"} & set(plain["declared"])
    allowed = " that the declarations allow" if limited else ""
    if plain.get("several"):  # a randomised policy of a log has no fallback
        yield f"in a state that is not in the log, for which the policy has no action, one is taken{allowed}"
        return
    yield (
        f"in a state that was not visited the policy takes the first available action{allowed}"
        + (", of those that satisfied their constraints before it was frozen if there is one" if known else "")
    )


def on_log(plain: Plain) -> Iterator[str]:
    """Yield what bounds from a log rest on."""
    yield from on_learning(plain)
    yield (
        "whoever chose the actions saw nothing that affects the outcome beside the state (no hidden confounding), and "
        "nothing drifted"
    )
    yield "no row or episode was dropped, repeated or edited after its outcome was known"
    if plain["given"]:
        yield "the policy was fixed before anybody looked at this log, and is not random if it is a function"
        if plain["kept"]:
            yield "by every outcome of the declared support the policy satisfies every constraint"
    else:
        yield (
            "the rows are in the order of time and the number of episodes was fixed in advance: the policy was chosen "
            "on the rows before the middle episode, and nothing was learned from this log before, with another split "
            "or option"
        )
    if plain["behavior"]:
        yield "the behaviour policy was fixed before anybody looked at this log, and is not random if it is a function"
    if plain["inferred"]:
        yield f"every state offers the {plain['inferred']} actions of the log, and there are no others"
    if plain["missing"]:
        yield f"the next states of {plain['missing']:,} rows are missing for reasons that do not depend on them"


def behaves(name: str, digest: str) -> str:
    """Return that a system is like its model."""
    return f"the system behaves as the model {name!r} says (digest {digest})"


def limits(bounds: Sequence[float] | None) -> Iterator[str]:
    """Yield the declared bounds on constraints."""
    if bounds:
        yield f"|constraint| is at most {', '.join(f'{bound:g}' for bound in bounds)}, as declared"
    elif bounds is not None:
        yield "there are no constraints"


def forgiven(tolerances: Sequence[float]) -> Iterator[str]:
    """Yield the declared tolerances, if there are any."""
    if any(tolerances):
        shown = ", ".join(f"{tolerance:g}" for tolerance in tolerances)
        yield f"a constraint counts as satisfied down to {shown} below 0, as declared"
