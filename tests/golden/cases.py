"""Cases of the golden manifest: what peakrl computes, as digests of meaning.

A case returns {name: digest or number} of decisions, values, counts, generator words, histories and certificates. File
bytes, cache keys, class names and labels are left out, so that only a change of results changes the manifest.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import numpy as np

import peakrl
from peakrl import Assumptions, learners
from peakrl.learners import Certified, ConstrainedQ, PosteriorSampling, SafeQ

EPISODES = 60


def digest(*parts):
    """Digest of numbers, arrays and nested lists of them: types, shapes and contents."""
    made = hashlib.blake2b(digest_size=8)
    for part in parts:
        array = part if isinstance(part, np.ndarray) else None
        made.update(repr(part).encode() if array is None else f"{array.dtype.str}{array.shape}".encode())
        made.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return made.hexdigest()


# --- Problems -----------------------------------------------------------------------------------------------------


class Corridor(peakrl.Problem):
    """Five cells, slippery; cell 4 pays and must not be entered before step 2, so that rewards depend on the step."""

    horizon = 5
    stationary = False
    constraint_names = ("gate", "battery")

    def initial(self):
        return [(0.75, 1), (0.25, 0)]

    def actions(self, step, cell):
        return ("left", "stay", "right") if cell else ("stay", "right")

    def outcomes(self, step, cell, action):
        to = min(max(cell + {"left": -1, "stay": 0, "right": 1}[action], 0), 4)
        closed = -1.0 if to == 4 and step < 2 else 0.5
        pays = to + 0.25 * step
        battery = 2.0 if action != "right" else 1.0 - 0.25 * step
        if to == cell:
            yield 1.0, to, pays, (closed, battery)
        else:
            yield 0.875, to, pays, (closed, battery)
            yield 0.125, cell, 0.0, (0.5, 0.0)


class Trap(peakrl.Problem):
    """From the second state on every action violates: no policy satisfies the constraint."""

    horizon = 3
    constraint_names = ("trap",)

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return (0, 1)

    def outcomes(self, step, state, action):
        yield 0.5, 1, 1.0, (-1.0 if state else 1.0,)
        yield 0.5, 1 if action else 0, 0.5, (-0.5 if state else 1.0,)


@cache
def harvesting():
    """Stationary."""
    return peakrl.problems.energy_harvesting(peak_power=3, battery=4, max_arrival=4, horizon=6)


@cache
def model(name):
    """A compiled problem, made once."""
    return peakrl.compile_model({"stationary": harvesting, "layered": Corridor, "infeasible": Trap}[name]())


def problems() -> dict[str, Callable[[], object]]:
    """Every built-in problem, small."""
    return {
        "energy_harvesting": harvesting,
        "fading_channel": lambda: peakrl.problems.harvesting.fading_channel(),
        "machine_scheduling": lambda: peakrl.problems.scheduling_example(3),
        "random_schedule": lambda: peakrl.problems.machine_scheduling(
            [peakrl.problems.Job({2: 0.5, 3 + k: 0.5}, due=8, deadline=12 + 4 * k) for k in range(3)]
        ),
        "thermostat": lambda: peakrl.problems.heating.thermostat(),
        "queue": lambda: peakrl.problems.queue(room=8),
        "battery_robot": lambda: peakrl.problems.robots.battery_robot(),
        "corridor": Corridor,
        "trap": Trap,
    }


# --- What is recorded ---------------------------------------------------------------------------------------------


def policy_digest(policy):
    """Decisions of a policy, whatever form it has."""
    if hasattr(policy, "change_row"):
        return digest(policy.episodes, policy.first, policy.change_episode, policy.change_node, policy.change_row)
    return digest(policy.rows if hasattr(policy, "rows") else policy.weights)


def certificate_record(certificate):
    """Numbers of a certificate."""
    names = ("holds", "epsilon", "failure_probability", "value_low", "value_high", "optimum_high", "gap",
             "violation_high", "violation_probability_high", "episodes")  # fmt: skip
    return {name: getattr(certificate, name) for name in names}


def run_record(run):
    """Everything that a run has learned."""
    coverage = run.coverage
    record = {
        "policy": policy_digest(run.policy),
        "behavior_policy": policy_digest(run.behavior_policy),
        "averaged_policy": policy_digest(run.averaged_policy),
        "q": digest(run.q),
        "visits": None if run.visits is None else digest(run.visits),
        "episodes": run.episodes,
        "violations": run.violations,
        "last_violation_episode": run.last_violation_episode,
        "feasible": run.feasible,
        "infeasibility_proof": len(run.infeasibility_proof),
        "multipliers": None if run.multipliers is None else digest(run.multipliers),
        "generator": digest(run._trainer.generator),
        "history": digest(*(column for _, column in sorted(run.history.columns().items()))),
    }
    if coverage is not None:
        record |= {"coverage": [coverage.states, coverage.probability, coverage.probability_high]}
    if run.certificate is not None:
        record |= {f"certificate {name}": value for name, value in certificate_record(run.certificate).items()}
    return record


# --- Learners -----------------------------------------------------------------------------------------------------

LEARNERS = {
    "PosteriorSampling": PosteriorSampling,
    "SafeQ": SafeQ,
    "ConstrainedQ.paper": lambda: ConstrainedQ.paper(slack=0.1),
    "ConstrainedQ.published": lambda: ConstrainedQ.published(slack=0.1),
    "ConstrainedQ.deterministic": lambda: ConstrainedQ.deterministic(phi=0.1),
    "Certified": lambda: Certified(epsilon=[9.0, 0.5]),
    "UCBVI": learners.UCBVI,
    "SUCBVI": learners.SUCBVI,
    "RLSVI": learners.RLSVI,
    "MaskedQ": learners.MaskedQ,
    "MaximinQ": learners.MaximinQ,
    "TripleQ": lambda: learners.TripleQ(total=1.0),
    "OptCMDP": lambda: learners.OptCMDP(total=1.0, scale=0.01),
    "OptCMDP.certainty_equivalent": lambda: learners.OptCMDP.certainty_equivalent(total=1.0),
    "OptPessLP": lambda: learners.OptPessLP(total=1.0, safe_policy=safe_weights(), scale=0.01),
    "DOPE": lambda: learners.DOPE(total=1.0, safe_policy=safe_weights(), scale=0.01),
    "OptDual": lambda: learners.OptDual(total=1.0),
    "OptPrimalDual": lambda: learners.OptPrimalDual(total=1.0),
    "WeiMDP": lambda: learners.WeiMDP(total=1.0),
}  # fmt: skip
#: Learners that plan by linear programs: slow, few episodes.
LINEAR = ("OptCMDP", "OptCMDP.certainty_equivalent", "OptPessLP", "DOPE")
#: Learners that need a policy of the model.
ON_MODELS = ("OptPessLP", "DOPE")


def safe_weights():
    """The optimal policy of the stationary problem, which violates nothing."""
    return peakrl.solve(model("stationary")).policy


def learn(name, target, **options):
    """Run one learner of the list."""
    count = options.pop("episodes", 4 if name in LINEAR else EPISODES)
    if name == "MaskedQ" and "assumptions" not in options:
        options["assumptions"] = Assumptions(support=target)
    return peakrl.learn(target, LEARNERS[name](), episodes=count, seed=7, **options)


def environment(problem):
    """A Gymnasium environment that declares everything but its number of states."""
    return peakrl.to_gymnasium(problem)


def on_environment(name, problem):
    """Run a learner on an environment."""
    known = {"constraints": lambda step, state, action: 2.0 - action} if name == "MaskedQ" else {}
    return run_record(learn(name, environment(problem), assumptions=Assumptions(states=30, **known)))


def resumed(name):
    """Half of the run on the stationary model, saved and resumed: the record of the whole run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "half.run"
        learn(name, model("stationary"), episodes=EPISODES // 2).save(file)
        return run_record(peakrl.resume(file, episodes=EPISODES))


# --- Cases --------------------------------------------------------------------------------------------------------


def cases() -> Iterable[tuple[str, Callable[[], dict]]]:
    """Yield every case by name."""
    yield "model digests", lambda: {name: peakrl.compile_model(make()).digest for name, make in problems().items()}
    for name in ("stationary", "layered", "infeasible"):
        yield f"solve {name}", lambda name=name: solved(model(name))
        yield f"judge {name}", lambda name=name: judged(model(name))
    yield "solve_cmdp", budgets
    for name in LEARNERS:
        yield f"{name} on a stationary model", lambda name=name: run_record(learn(name, model("stationary")))
        if name not in ON_MODELS:
            yield f"{name} on a layered model", lambda name=name: run_record(learn(name, model("layered")))
            yield f"{name} on an environment", lambda name=name: on_environment(name, harvesting())
    for name in ("PosteriorSampling", "SafeQ", "ConstrainedQ.paper", "Certified", "UCBVI"):
        yield f"{name} on a layered environment", lambda name=name: on_environment(name, Corridor())
    for name in ("PosteriorSampling", "SafeQ"):
        yield f"{name} on an infeasible model", lambda name=name: run_record(learn(name, model("infeasible")))
    for name in ("PosteriorSampling", "SafeQ", "Certified"):
        yield f"{name} with declarations", lambda name=name: declared(name)
    yield "Certified until it stops", certified
    yield (
        "PosteriorSampling in its safe set",
        lambda: run_record(
            learn("PosteriorSampling", model("stationary"), assumptions=Assumptions(support=model("stationary")))
        ),
    )


def declared(name):
    """Stationary, rewards, constraints by action and shared distributions are declared."""
    assumptions = Assumptions(stationary=True, rewards=True, constraint_depends_on="pair", shared_transitions=True)
    return run_record(learn(name, model("stationary"), assumptions=assumptions))


def certified():
    """The certified learner ends by itself."""
    assumptions = Assumptions(rewards=True, shared_transitions=True)
    learner = Certified(epsilon=0.3, relative=True)
    return run_record(peakrl.learn(model("stationary"), learner, episodes=5_000, seed=7, assumptions=assumptions))


def solved(target):
    """Planner: original and modified problem, safe set."""
    best, modified = peakrl.solve(target), peakrl.theory.solve_modified(target, slack=0.1)
    safe = best.safe_set
    return {
        "value": best.value, "violation": best.violation, "feasible": best.feasible,
        "policy": policy_digest(best.policy), "node_values": digest(best.node_values),
        "modified": [modified.value, modified.violation, policy_digest(modified.policy)],
        "safe_set": digest(*(tuple(count) for count in safe.counts)),
    }  # fmt: skip


def judged(target):
    """Evaluation, simulation and certificates of two policies."""
    record = {}
    for name, policy in (("best", peakrl.solve(target).policy), ("learned", learn("SafeQ", target).averaged_policy)):
        found = peakrl.evaluate(target, policy)
        seen = peakrl.simulate(target, policy, episodes=50, seed=3)
        record |= {
            f"{name} evaluate": [found.value, found.violation, found.violation_probability],
            f"{name} steps": digest(found.step_rewards, found.step_violations, found.worst_margin),
            f"{name} simulate": digest(seen.rewards, seen.violations),
        }
        certificate = peakrl.certify(target, policy)
        record |= {f"{name} certify {key}": value for key, value in certificate_record(certificate).items()}
    sampled = peakrl.certify(environment(Corridor()), lambda step, state, actions: actions[0], episodes=200, seed=3)
    return record | {f"sampled {key}": value for key, value in certificate_record(sampled).items()}


def budgets():
    """Limits on expected violations, by linear programs and Lagrangian search."""
    target, found = model("infeasible"), {}
    for name, limit in {
        "total": {"total": 3.0}, "per_constraint": {"per_constraint": [3.0]}, "chance": {"chance": 0.9},
    }.items():  # fmt: skip
        best = peakrl.solve_cmdp(target, **limit)
        found[name] = [round(best.value, 9), round(best.violation, 9), best.feasible]
    return found
