"""Files of every kind with random changes and a correct digest, so that only the checks of content protect the kernels.

    python tests/helpers/file_fuzzer.py FOLDER FIRST COUNT

makes the forgeries FIRST .. FIRST + COUNT - 1 (a number gives the same file everywhere), reads, continues and evaluates
each, and prints as JSON how many were refused and taken, and each one that raised anything but a PeakError.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import json
import sys
import traceback
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from peakrl import (
    Logs,
    PeakError,
    certify,
    compile_model,
    evaluate,
    learn,
    learners,
    records,
    resume,
    safe_set,
    solve,
    storage,
    sweep,
    verify,
)
from peakrl.gym.constrained_env import adapt
from peakrl.labels import SPACE_FIELDS
from peakrl.learners import Certified, PosteriorSampling, SafeQ
from peakrl.model_file import assembled, load_model, space_fields
from peakrl.policy import load_policy
from peakrl.records import kind_of, read_record, write_record
from peakrl.safety import load_safe_set
from peakrl.sweeps.summary import read_records
from peakrl.theory import solve_relaxed
from peakrl.training import load_run
from peakrl.training.run_file import write_run
from peakrl.training.trainer import Trainer
from peakrl.visited import VisitedStates

EXTREMES = [
    0, -1, 2, 2**31 - 1, 2**31, -(2**31), 2**64, 10**30, 0.5, -0.0, 1e308, 5e-324, True, None, "", "x", "nan", [], {},
    [[1]], {"a": 1}, [None] * 3, "practical", "averaged", "</script>", "\ud800", "\0", "os:system", "y" * 5000,
]  # fmt: skip


# Good files, and what a reader does with them -------------------------------------------------------------------------


def make_bases(folder):
    """Write one good file of every kind; return {path: what a reader does with it}."""
    layered = compile_model(random_problem(8, states=3, actions=2, horizon=3, stationary=False, outcome_payoffs=True))
    shared = compile_model(random_problem(9, states=3, actions=2, horizon=2, stationary=True))
    doomed = compile_model(random_problem(26, states=2, actions=2, horizon=3, safe_action=False))
    long = compile_model(random_problem(5, states=3, actions=2, horizon=40, stationary=True))
    practical, posterior, best = SafeQ(), PosteriorSampling(), solve(layered)
    environment = ModelEnvironment(shared, 5)
    # MaskedQ is left out: its settings are a function, which no file holds. Pessimistic learns from logs.
    runs = {
        name: (shared, settings_of(name, shared))
        for name in learners.LEARNERS
        if name not in ("MaskedQ", "Pessimistic")
    }
    runs |= {"practical layered": (layered, practical), "posterior layered": (layered, posterior)}
    runs |= {"practical doomed": (doomed, practical), "posterior doomed": (doomed, posterior)}
    bases = {}
    for name, (model, settings) in runs.items():
        cut(folder / name, model, settings)
        bases[folder / name] = use_run
    for name, settings in (("practical", practical), ("posterior", posterior)):
        cut(folder / f"environment {name}", adapt(ModelEnvironment(shared, 5)), settings)
        bases[folder / f"environment {name}"] = partial(use_environment_run, shared)
    table = {"episode": [0, 0, 1, 1], "state": [0, 1, 0, 1], "action": [0, 0, 1, 0], "reward": [1.0, 0, 0, 1]}
    logged = learn(Logs.from_frame(table, horizon=2, reward_range=(0, 1)))
    met = learn(environment, posterior, episodes=40)
    for name, thing, use in (
        ("policy", best.policy, partial(use_policy, layered)),
        ("policy averaged", learn(layered, practical, episodes=40).averaged_policy, partial(use_policy, layered)),
        ("policy stochastic", solve_relaxed(layered, 0.1).policy, partial(use_policy, layered)),
        ("policy by changes", solve(long).policy, partial(use_policy, long)),
        ("policy environment", met.policy, use_environment_policy),
        ("policy environment averaged", met.averaged_policy, use_environment_policy),
        ("model", layered, use_model),
        ("model shared", shared, use_model),
        ("safe set", safe_set(shared), lambda path: load_safe_set(path, shared).to_csv()),
        ("certificate exact", certify(layered, best.policy), verify),
        ("certificate sampled", certify(environment, solve(shared).policy, epsilon=1.0, episodes=50, seed=1), verify),
        ("environment from a log", logged, use_logged_run),
        ("certificate logged", logged.certificate, verify),
        ("certificate learned", learn(shared, Certified(1.0), episodes=2000).certificate, verify),
    ):
        thing.save(folder / name)
        bases[folder / name] = use
    described = {
        "folder": str(folder / "sweep"), "seeds": 1, "episodes": 20, "points": 5,
        "problems": [{"kind": "scheduling_example", "number": 1}], "settings": [{"learner": "SafeQ"}],
    }  # fmt: skip
    sweep(described, workers=1)
    (path,) = (folder / "sweep").rglob("*.run")
    bases[path] = lambda path: read_records(folder / "sweep")
    return bases


def settings_of(name, model):
    """Return a learner's settings, with those that are required."""
    limit, best = {"total": 1.0}, solve(model).policy
    needed = {
        "ConstrainedQ": {"slack": 0.5}, "Certified": {"epsilon": 0.5},
        "DOPE": {"safe_policy": best, **limit}, "OptPessLP": {"safe_policy": best, **limit}, "OptCMDP": limit,
        "WeiMDP": limit, "TripleQ": limit,
        "OptDual": {"slater": 0.5, **limit}, "OptPrimalDual": {"slater": 0.5, **limit},
    }  # fmt: skip
    return learners.find_learner(name)(**needed.get(name, {}))


def cut(path, target, settings):
    """Write a run that stopped before its planned end; those that solve linear programmes are shorter."""
    active = Trainer(target, settings, planned=60, seed=3, every=5, average=True)
    active.advance(8 if type(settings).__name__ in ("DOPE", "OptCMDP", "OptPessLP") else 40)
    write_run(path, active)


def use_run(path):
    run = load_run(path)
    repr(run), run.q, [str(line) for line in run.infeasibility_proof]
    evaluate(run.model, run.policy)
    if run.episodes < 10_000:
        resume(path, episodes=run.episodes + 3, checkpoint=False)


def use_environment_run(model, path):
    run = load_run(path, ModelEnvironment(model, 5))
    repr(run), run.q, [str(line) for line in run.infeasibility_proof], run.policy.to_csv()
    if run.episodes < 10_000:
        resume(path, env=ModelEnvironment(model, 5), episodes=run.episodes + 3, checkpoint=False)


def use_logged_run(path):
    run = load_run(path)
    repr(run), run.q, run.certificate, run.policy.to_csv()


def use_policy(model, path):
    policy = load_policy(path, model)
    evaluate(model, policy)
    policy.to_csv()


def use_environment_policy(path):
    policy = load_policy(path)
    policy.to_csv(), policy.table(0), repr(policy)


def use_model(path):
    model = load_model(path)
    solve(model), repr(model), model.digest
    learn(model, episodes=2, history="none")


# Forging --------------------------------------------------------------------------------------------------------------


def forged(rng, plain, arrays):
    """Return a copy with one to three changes and correct inner digests."""
    plain, arrays = copy.deepcopy(plain), dict(arrays)
    for _ in range(int(rng.integers(1, 4))):
        if arrays and rng.random() < 0.7:
            forge_array(rng, arrays)
        else:
            forge_plain(rng, plain)
    correct_digests(plain, arrays)
    return plain, arrays


def forge_array(rng, arrays):
    name = str(rng.choice(list(arrays)))
    array = arrays[name]
    kind = rng.integers(10)
    if kind < 5 and array.size:
        arrays[name] = changed_number(rng, array)
    elif kind == 5 and array.ndim:
        arrays[name] = array[: len(array) // 2].copy()
    elif kind == 6 and array.ndim:
        arrays[name] = np.concatenate([array, array])
    elif kind == 7:
        arrays[name] = array.astype(rng.choice([np.uint8, np.int64, np.float64, np.int32, np.float32, np.bool_]))
    elif kind == 8:
        arrays[name] = array.reshape(-1) if array.ndim > 1 else array[None]
    elif kind == 9:
        del arrays[name]


def changed_number(rng, array):
    array = array.copy()
    flat = array.reshape(-1)
    place = int(rng.integers(flat.size))
    values = [0, 1, -1, -2, flat.size, 1000, 2**30, 2**31 - 1, -(2**31), flat[rng.integers(flat.size)]]
    with np.errstate(all="ignore"):
        values += [flat[place] + 1, flat[place] - 1]
        if flat.dtype.kind == "f":
            values += [np.nan, np.inf, -np.inf, 1e308, 5e-324]
        flat[place] = np.array(values[int(rng.integers(len(values)))]).astype(flat.dtype)
    return array


def forge_plain(rng, plain):
    """Change or remove a value anywhere in the manifest but its kind."""
    names = [name for name in plain if name != "kind"]
    if not names:  # removed by an earlier change
        return
    place, key = plain, str(rng.choice(names))
    while isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
        place = place[key]
        key = rng.choice(list(place)).item() if isinstance(place, dict) else int(rng.integers(len(place)))
    if rng.random() < 0.1 and isinstance(place, dict):
        del place[key]
    elif isinstance(place[key], int | float) and rng.random() < 0.5:
        place[key] = place[key] + int(rng.choice([-1, 1, 1000]))
    else:
        place[key] = copy.deepcopy(EXTREMES[int(rng.integers(len(EXTREMES)))])


def correct_digests(plain, arrays):
    """Make the digest of a stored model that of its arrays; what cannot be assembled keeps its digest."""
    record = records.Record(plain, arrays)
    with contextlib.suppress(Exception):  # the file of a model
        plain["digest"] = assembled(record).digest
    with contextlib.suppress(Exception):  # a run
        plain["model"]["digest"] = assembled(record.part("model")).digest
    with contextlib.suppress(Exception):  # a policy of visited states
        plain["model"] = VisitedStates(**space_fields(record.part("space"), SPACE_FIELDS)).digest


def main(folder, first, count):
    warnings.simplefilter("ignore")
    faulthandler.enable()
    records.write_file = lambda path, data: Path(path).write_bytes(data)
    bases = make_bases(folder)
    good = {path: read_record(path, kind_of(path)) for path in bases}
    for path, use in bases.items():
        use(path)
    refuse = storage.refuse_surrogates
    found, counts, paths = [], {"refused": 0, "taken": 0}, list(bases)
    for number in range(first, first + count):
        rng, path = np.random.default_rng(number), paths[number % len(paths)]
        print(f"forgery {number} of {path.name}", file=sys.stderr, flush=True)
        plain, arrays = forged(rng, *good[path])
        storage.refuse_surrogates = lambda text, value: None  # not when it is written
        write_record(path, plain.pop("kind"), plain, arrays)
        storage.refuse_surrogates = refuse
        try:
            bases[path](path)
            counts["taken"] += 1
        except PeakError:
            counts["refused"] += 1
        except BaseException:
            found.append(f"forgery {number} of {path.name}: {traceback.format_exc(limit=-4)}")
    print(json.dumps({**counts, "found": found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
