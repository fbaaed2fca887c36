"""Forged files by the thousand: each has a right digest, so that nothing but the checks of its content stands between
it and the kernels. Run as a program, in a process of its own whose kernels check their bounds:

    python tests/file_fuzzer.py FOLDER FIRST COUNT

makes the forgeries FIRST .. FIRST + COUNT - 1, reads, continues, evaluates and draws each, and prints as JSON how many
were refused and taken, and what else happened: anything but a PeakError, more than 10 s, or more than 2 GB.
"""

from __future__ import annotations

import contextlib
import copy
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

from forged_bases import make_bases
from peakrl import PeakError, storage
from peakrl.model import files, visited_files

SECONDS, BYTES = 10, 2 << 30
EXTREMES = [
    0, 1, -1, 2, 7, -2, 2**31 - 1, 2**31, -(2**31), 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, -1e308, 5e-324, 1e-300,
    True, False, None, "", "x", "nan", [], {}, [0], [[1]], {"a": 1}, [None] * 3, "practical", "averaged",
    "</script><script>", "$\\frac{", "\ud800", "\0", "=1+1", "os:system", "../../x", "y" * 5000,
]  # fmt: skip


class Hang(BaseException):
    """It took too long."""


# Forging ------------------------------------------------------------------------------------------------------------


def forged(rng, plain, arrays):
    """Return a copy with one to three changes, its inner digests made right."""
    before, told = dict(arrays), {key: json.dumps(plain.get(key)) for key in ("model", "stored", "space")}
    plain, arrays = json.loads(json.dumps(plain)), dict(arrays)  # an array that is changed is copied first
    for _ in range(int(rng.integers(1, 4))):
        if arrays and rng.random() < 0.7:
            forge_array(rng, arrays)
        else:
            forge_plain(rng, plain)
    changed = [name for name in before if arrays.get(name) is not before[name]]
    if any(name.startswith(("model.", "space.")) for name in changed) or told != {
        key: json.dumps(plain.get(key)) for key in told
    }:
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
    names = [name for name in plain if name != "kind"]
    if not names:
        return
    place, key = plain, str(rng.choice(names))
    while isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
        place = place[key]
        key = rng.choice(list(place)).item() if isinstance(place, dict) else int(rng.integers(len(place)))
    if rng.random() < 0.1 and isinstance(place, dict):
        del place[key]
    elif isinstance(place[key], int | float) and rng.random() < 0.5:
        place[key] = place[key] + int(rng.choice([-1, 1, 5, 1000]))
    else:
        place[key] = copy.deepcopy(EXTREMES[int(rng.integers(len(EXTREMES)))])  # it may be changed in turn


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
    if "space" in plain:
        with contextlib.suppress(Exception):
            own = visited_files.part(arrays, "space.")
            plain["model"] = visited_files.rebuilt(str(plain["problem"]), plain["space"], own).digest


def write(base, plain, arrays):
    """Write a forgery; whoever forges is not stopped by what `write_record` refuses to write."""
    refuse, storage.refuse_half_signs = storage.refuse_half_signs, lambda text, value: None
    try:
        base.write(base.path, plain, arrays)
    finally:
        storage.refuse_half_signs = refuse


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
    storage.write_file = lambda path, data: Path(path).write_bytes(data)  # nobody pulls the plug here
    bases = make_bases(folder)
    for base in bases.values():
        base.use(base.path)  # a good file is taken; and this compiles the kernels
    limit_memory()
    signal.signal(signal.SIGPROF, hang)
    found, counts, slowest, names = [], {"refused": 0, "taken": 0}, (0.0, ""), list(bases)
    with open(folder / "latest", "w", buffering=1) as latest:
        for number in range(first, first + count):
            rng, name = np.random.default_rng(number), names[number % len(names)]
            base = bases[name]
            write(base, *forged(rng, base.plain, base.arrays))
            latest.write(f"{number} {name}\n")
            begun = time.process_time()
            outcome = attempt(base.use, base.path)
            slowest = max(slowest, (time.process_time() - begun, f"{number} {name}"))
            if outcome in counts:
                counts[outcome] += 1
            else:
                found.append(f"forgery {number} of {name}: {outcome}")
    print(json.dumps({**counts, "found": found, "slowest": slowest, "kinds": len(names)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
