"""Forged files by the thousand: each has a right digest, so that nothing but the checks of its content stands between
it and the kernels. Run as a program, in a process of its own whose kernels check their bounds:

    python tests/file_fuzzer.py FOLDER FIRST COUNT

makes the forgeries FIRST .. FIRST + COUNT - 1, reads, continues, evaluates and draws each, and prints as JSON how many
were refused and taken, and what else happened: anything but a PeakError, more than 10 s, or more than 2 GB.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

from model_environment import ModelEnvironment
from peakrl import (
    LearnerSettings,
    PeakError,
    certify,
    compile_model,
    energy_harvesting,
    evaluate,
    learn,
    load_policy,
    load_run,
    load_safe_set,
    resume,
    safe_set,
    scheduling_example,
    solve,
    verify,
    write_report,
)
from peakrl.learning.active import ActiveRun
from peakrl.learning.checkpoint import write_run
from peakrl.model import files
from peakrl.runs.store import Store
from peakrl.runs.tasks import Task
from peakrl.storage import kind_of, read_record, write_record
from peakrl.targets.adapters import adapt
from random_problems import random_problem

SECONDS, BYTES = 10, 2 << 30
#: Every so many files that are taken are drawn too: a page takes longer than all else together.
DRAWN = 25
EXTREMES = [
    0, 1, -1, 2, 7, -2, 2**31 - 1, 2**31, -(2**31), 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, -1e308, 5e-324, 1e-300,
    True, False, None, "", "x", "nan", [], {}, [0], [[1]], {"a": 1}, [None] * 3, "practical", "averaged",
]  # fmt: skip


class Hang(BaseException):
    """It took too long."""


def make_bases(folder):
    """Write one good file of every kind; return {name: (path, use)}, where `use` is what a reader would do with it."""
    layered = compile_model(random_problem(8, states=3, actions=2, horizon=3, stationary=False, outcome_payoffs=True))
    shared = compile_model(random_problem(9, states=4, actions=3, horizon=3, stationary=True))
    doomed = compile_model(random_problem(26, states=2, actions=2, horizon=3, safe_action=False))
    jobs, tank = (
        compile_model(scheduling_example(1)),
        compile_model(energy_harvesting(battery=2, max_arrival=2, horizon=3)),
    )
    practical = LearnerSettings.practical()
    bases = {}

    def add(name, write, use):
        path = folder / name
        write(path)
        bases[name] = path, use

    runs = {
        "run practical layered": (layered, practical), "run practical shared": (shared, practical),
        "run practical doomed": (doomed, practical), "run jobs": (jobs, practical),
        "run paper": (tank, LearnerSettings.paper(0.5)), "run published": (layered, LearnerSettings.published(0.5)),
        "run posterior": (shared, LearnerSettings.posterior()),
    }  # fmt: skip
    for name, (model, settings) in runs.items():
        add(name, cut(model, settings), use_run)
    for name, settings in (("environment practical", practical), ("environment paper", LearnerSettings.paper(0.5))):
        add(name, cut(adapt(ModelEnvironment(shared, 5)), settings), use_environment(shared))
    run = learn(layered, practical, episodes=40)
    add("policy", solve(layered).policy.save, use_policy(layered))
    add("policy averaged", run.averaged_policy.save, use_policy(layered))
    add("safe set", lambda path: safe_set(shared).save(path, with_model=True), use_safe_set)
    add("certificate exact", certify(layered, solve(layered).policy).save, verify)
    add(
        "certificate sampled",
        certify(ModelEnvironment(shared, 5), solve(shared).policy, epsilon=1.0, episodes=50, seed=1).save,
        verify,
    )
    store = Store.create(folder / "results")
    task = Task("a.module:function", {"seed": 1, "learner": "practical"})
    store.write(task, {"value": 1.5, "curve": [1, 2]}, {"curve": np.arange(3.0)}, 0.1)
    bases["sweep result"] = store.path(task.key), lambda path: store.read(path.stem)
    return bases


def cut(target, settings):
    """Return what writes a run of 60 episodes that was cut after 40."""
    active = ActiveRun(target, settings, planned=60, seed=3, every=5, average=True)
    active.advance(40)
    return lambda path: write_run(path, active)


def use_run(path):
    """Read a run, continue it and evaluate what it learned."""
    run = load_run(path)
    repr(run), run.q, [str(line) for line in run.proof]
    evaluate(run.model, run.policy)
    if run._averaged is not None:
        evaluate(run.model, run.averaged_policy)
    if run.episodes < 10_000:
        resume(path, episodes=run.episodes + 7, checkpoint=False)
    use_run.taken = getattr(use_run, "taken", 0) + 1
    if use_run.taken % DRAWN == 0:
        write_report(path, path.with_suffix(".html"))


def use_environment(model):
    def use(path):
        load_run(path)  # without the environment all that is known of it stands in the file
        run = load_run(path, env=ModelEnvironment(model, 5))
        repr(run), run.q, [str(line) for line in run.proof], run.policy.to_csv()
        if run.episodes < 10_000:
            resume(path, env=ModelEnvironment(model, 5), episodes=run.episodes + 7, checkpoint=False)

    return use


def use_policy(model):
    def use(path):
        policy = load_policy(path, model)
        evaluate(model, policy)
        policy.to_csv()

    return use


def use_safe_set(path):
    load_safe_set(path).to_csv()


# Forging ------------------------------------------------------------------------------------------------------------


def forged(rng, plain, arrays):
    """Return a copy with one to three changes, its inner digests made right."""
    plain, arrays = json.loads(json.dumps(plain)), {name: array.copy() for name, array in arrays.items()}
    for _ in range(int(rng.integers(1, 4))):
        if arrays and rng.random() < 0.7:
            forge_array(rng, arrays)
        else:
            forge_plain(rng, plain)
    make_digests_right(plain, arrays)
    return plain, arrays


def forge_array(rng, arrays):
    name = str(rng.choice(list(arrays)))
    array = arrays[name]
    kind = rng.integers(12)
    if kind < 6 and array.size:
        arrays[name] = changed_number(rng, array)
    elif kind == 6:
        arrays[name] = array[: len(array) // 2].copy() if array.ndim else array
    elif kind == 7 and array.ndim:
        arrays[name] = np.concatenate([array, array])
    elif kind == 8:
        arrays[name] = array.astype(rng.choice([np.uint8, np.int64, np.float64, np.int32, np.float32, np.bool_]))
    elif kind == 9:
        arrays[name] = array.reshape(-1) if array.ndim > 1 else array[None]
    elif kind == 10:
        del arrays[name]
    elif array.size:
        arrays[name] = rng.permutation(array.reshape(-1)).reshape(array.shape)


def changed_number(rng, array):
    array = array.copy()
    flat = array.reshape(-1)
    places = rng.integers(flat.size, size=1 if rng.random() < 0.8 else 3)
    with np.errstate(all="ignore"):
        for place in places:
            value = flat[place]
            near = [value + 1, value - 1, value * 2, flat[rng.integers(flat.size)], 0, -1, -2, 1, flat.size]
            far = [2**31 - 1, -(2**31), 2**30, 1000]
            if flat.dtype.kind == "f":
                near += [np.nan, np.inf, -np.inf, 1e308, 5e-324, np.frombuffer(np.int64(2**40).tobytes())[0]]
            chosen = np.array(rng.choice(np.array(near + far, object))).astype(object).item()
            flat[place] = np.array(chosen).astype(flat.dtype)
    return array


def forge_plain(rng, plain):
    """Change, drop or add a value anywhere in the manifest but its kind."""
    place, key = plain, str(rng.choice([name for name in plain if name != "kind"]))
    while isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
        place = place[key]
        key = rng.choice(list(place)).item() if isinstance(place, dict) else int(rng.integers(len(place)))
    if rng.random() < 0.1 and isinstance(place, dict):
        del place[key]
    elif isinstance(place[key], int | float) and rng.random() < 0.5:
        place[key] = place[key] + int(rng.choice([-1, 1, 5, 1000]))
    else:
        place[key] = EXTREMES[int(rng.integers(len(EXTREMES)))]


def make_digests_right(plain, arrays):
    """A digest shows damage, not honesty: whoever forges a model forges its digest."""
    for key in ("model", "stored"):
        told = plain.get(key)
        if isinstance(told, dict) and "digest" in told:
            own = {name.removeprefix("model."): array for name, array in arrays.items()}
            try:
                told["digest"] = files.rebuilt(told, {name: own[name] for name in files.TYPES}, own).digest
            except Exception:  # what cannot be put together keeps its old digest
                continue
            if key == "stored":
                plain["model"] = told["digest"]


# Trying -------------------------------------------------------------------------------------------------------------


def attempt(use, path):
    """Return "refused", "taken", or what else happened."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of this process: others may keep the machine busy
    try:
        use(path)
    except PeakError:
        return "refused"
    except Hang:
        return f"took more than {SECONDS} s: {traceback.format_exc(limit=-3)}"
    except BaseException:  # whatever it is, it is a finding
        return traceback.format_exc(limit=-4)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "taken"


def hang(number, frame):
    raise Hang


def limit_memory():
    """Allow 2 GB more than what the process has mapped by now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES,) * 2)


def main(folder, first, count):
    warnings.simplefilter("ignore")
    faulthandler.enable()
    bases = make_bases(folder)
    contents = {}
    for name, (path, use) in bases.items():
        contents[name] = read_record(path, kind_of(path))
        use(path)  # a good file is taken; and this compiles the kernels
    write_report(folder / "run paper", folder / "page.html")
    limit_memory()
    signal.signal(signal.SIGPROF, hang)
    found, counts, slowest, names = [], {"refused": 0, "taken": 0}, 0.0, list(bases)
    for number in range(first, first + count):
        rng, name = np.random.default_rng(number), names[number % len(names)]
        path, use = bases[name]
        plain, arrays = forged(rng, *contents[name])
        write_record(path, plain.pop("kind"), plain, arrays)
        (folder / "latest").write_text(f"{number} {name}")
        begun = time.process_time()
        outcome = attempt(use, path)
        slowest = max(slowest, time.process_time() - begun)
        if outcome in counts:
            counts[outcome] += 1
        else:
            found.append(f"forgery {number} of {name}: {outcome}")
    print(json.dumps({**counts, "found": found, "slowest": slowest}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
