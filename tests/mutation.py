"""Mutation testing: break one place of the code at a time (`mutants.py`), and see whether a test notices.

    python tests/mutation.py [--each NUMBER OF MUTANTS OF A MODULE] [--seed SEED] [MODULE ...]

Mutants are drawn with the seed. The JIT is off, so that kernels are plain Python. A module's tests are collected and
run once, which tells which of them call which function; then each mutant is tried in a forked process, which runs the
tests that call its function until one fails: those first that have killed most, then the quickest. A mutant that makes
a test fail, or compute five times as long as it should, is killed. Survivors are printed with their line: each lacks a
test, or changes nothing that anybody could notice. Those of the second kind that somebody has looked at are in
`mutation_survivors.py`, with the reason, and are counted by themselves.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from mutants import Source, put_in
from mutation_survivors import HARMLESS

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
#: Each module with the tests that must notice.
TARGETS = {
    "peakrl/storage.py": ["test_storage.py", "test_failing_disk.py"],
    "peakrl/model/soundness.py": ["model/test_soundness.py", "model/test_model_files.py"],
    "peakrl/learning/practical_checks.py": ["learning/test_forged_runs.py"],
    "peakrl/certificates/bounds.py": ["certificates/test_bounds.py"],
    "peakrl/certificates/verify_exact.py": ["certificates/test_verify.py"],
    "peakrl/certificates/verify_model.py": ["certificates/test_verify.py"],
    "peakrl/certificates/verify_learned.py": ["certificates/test_verify_learned.py", "learning/test_certified.py"],
    "peakrl/planning/exact.py": ["planning/test_planning.py", "planning/test_backward.py", "planning/test_settling.py"],
    "peakrl/kernels/backward.py": ["planning/test_planning.py", "planning/test_backward.py"],
    "peakrl/kernels/planning.py": ["learning/test_linear.py", "planning/test_budgets.py"],
    "peakrl/kernels/safety.py": ["safety/test_safe_set.py", "learning/test_safe_policy.py"],
    "peakrl/kernels/sampling.py": ["kernels/test_sampling.py"],
    "peakrl/kernels/evaluation.py": ["evaluation/test_evaluation.py"],
    "peakrl/kernels/learning.py": ["learning/test_learning.py", "learning/test_environments.py"],
    "peakrl/kernels/triple_q.py": ["learning/test_q_tables.py"],
    "peakrl/kernels/untried.py": ["learning/test_untried.py"],
    "peakrl/kernels/certified/bounds.py": ["kernels/test_certified.py", "learning/test_certified.py"],
    "peakrl/kernels/certified/values.py": ["kernels/test_certified.py", "learning/test_certified.py"],
    "peakrl/kernels/certified/gaps.py": ["kernels/test_certified.py", "learning/test_certified.py"],
    "peakrl/kernels/certified/candidates.py": ["kernels/test_certified.py", "learning/test_certified.py"],
}
#: Tests that take long without the JIT, or start processes of their own, which know nothing of the mutant.
LEFT_OUT = "quantecon or jit_off or compiled or 10_000 or takes_the_memory or make_it_cheaper or cvxpy"
OPTIONS = [
    "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:terminal", "-m", "not slow",
    "-k", f"not ({LEFT_OUT})", "-W", "ignore::RuntimeWarning", "-W", "ignore:Module already imported",
    "-W", "ignore:Overriding environment",
]  # fmt: skip
SURVIVED, KILLED = 0, 1
MEMORY = 3 << 30


class Mutated(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Finds one module, and hands out mutated code for it."""

    def __init__(self, name, path, code):
        super().__init__(name, str(path))
        self.code = code

    def find_spec(self, fullname, path=None, target=None):
        if fullname == self.name:
            return importlib.machinery.ModuleSpec(fullname, self, origin=self.path)
        return None

    def get_code(self, fullname):
        return self.code


class Trial:
    """What pytest is given in place of running tests: the mutants of a module, each tried by those tests."""

    def __init__(self, module, count, seed):
        self.module, self.source = module, Source(SOURCE / module)
        numbers = list(range(len(self.source.places)))
        random.Random(f"{seed} {module}").shuffle(numbers)
        self.chosen = numbers[:count]
        #: [test]: seconds, and the functions that it calls.
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, set[str]] = {}
        self.kills: Counter[str] = Counter()
        self.found: tuple[int, int, int] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self):
        """The same examples every time; which of them is the simplest one to fail nobody asks."""
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", settings(), derandomize=True, database=None, phases=phases)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session):
        self.items = session.items
        importlib.import_module(self.name)
        for item in self.items:
            self.look_at(item)
        self.found = self.try_all()
        return True

    @property
    def name(self):
        return self.module.removesuffix(".py").replace("/", ".")

    def look_at(self, item):
        """Run a test on the code as it is; note how long it takes and what it calls."""
        called, path, begun = set(), str(self.source.path), time.process_time()

        def note(frame, event, argument):
            if event == "call" and frame.f_code.co_filename == path:
                called.add(frame.f_code.co_name)

        sys.setprofile(note)
        try:
            failed = fails(item)
        finally:
            sys.setprofile(None)
        if failed:
            raise SystemExit(f"{self.module}: {item.nodeid} fails before anything is broken")
        self.seconds[item.nodeid], self.calls[item.nodeid] = time.process_time() - begun, called

    def try_all(self):
        """Return how many mutants were tried, how many survive and change nothing, and how many survive."""
        reasons, idle, left = HARMLESS.get(self.module, {}), 0, 0
        for number in self.chosen:
            if self.kill(number):
                continue
            name, line = self.source.names[number], self.source.places[number].node.lineno
            idle, left = (idle + 1, left) if name in reasons else (idle, left + 1)
            reason = f"  ({reasons[name]})" if name in reasons else ""
            print(f"  {self.module} line {line} in {name}{reason}", flush=True)
        return len(self.chosen), idle, left

    def kill(self, number):
        """Try a mutant in a process of its own; return whether a test notices."""
        within = self.source.places[number].within
        tests = [item for item in self.items if not within or within[-1] in self.calls[item.nodeid]]
        tests.sort(key=lambda item: (-self.kills[item.nodeid], self.seconds[item.nodeid]))
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            status = KILLED
            try:
                quiet()
                status = self.fresh(number) if not within else self.swapped(number, within, tests, write)
            finally:
                os._exit(status)
        os.close(write)
        killed = waited(child, 60 + 20 * sum(self.seconds.values()))
        with os.fdopen(read) as pipe:
            if killer := pipe.read():
                self.kills[killer] += 1
        return killed

    def swapped(self, number, within, tests, write):
        """Give the function its broken code, and run tests until one fails."""
        put_in(sys.modules[self.name], self.source.code(number), within)
        for item in tests:
            signal.signal(signal.SIGPROF, lambda *_, item=item: told(write, item))
            signal.setitimer(signal.ITIMER_PROF, 3 + 5 * self.seconds[item.nodeid])
            if fails(item):
                told(write, item)
        return SURVIVED

    def fresh(self, number):
        """Import everything anew with what belongs to no function broken, and run all tests."""
        for name, loaded in list(sys.modules.items()):
            path = getattr(loaded, "__file__", None)
            if path is not None and Path(path).is_relative_to(TESTS.parent) and name != "__main__":
                del sys.modules[name]
        sys.meta_path.insert(0, Mutated(self.name, self.source.path, self.source.code(number)))
        signal.signal(signal.SIGPROF, lambda *_: os._exit(KILLED))
        signal.setitimer(signal.ITIMER_PROF, 30 + 5 * sum(self.seconds.values()))
        return int(pytest.main(["-x", *OPTIONS, *paths_of(self.module)]) != 0)


def fails(item):
    """Run a test; return whether it fails."""
    from _pytest.runner import runtestprotocol

    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def told(write, item):
    """End the process, having said which test failed."""
    os.write(write, item.nodeid.encode())
    os._exit(KILLED)


def quiet():
    """Keep a mutant from printing and from taking all memory."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)


def waited(child, seconds):
    """Return whether a process ended otherwise than by saying that its mutant survived; one that waits is ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != SURVIVED
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def paths_of(module):
    return [str(TESTS / test) for test in TARGETS[module]]


def survivors(module, count, seed):
    """Try mutants of a module in a process of its own; return what became of them."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        trial = Trial(module, count, seed)
        pytest.main(["-s", *OPTIONS, *paths_of(module)], plugins=[trial])
        if trial.found is None:
            os._exit(1)
        os.write(write, " ".join(map(str, trial.found)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read().split()
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit(f"{module}: its tests could not be run")
    return tuple(map(int, told))


def main(count, seed, modules):
    sys.path[:0] = [str(SOURCE), str(TESTS)]
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    found = []
    for module in modules or TARGETS:
        begun = time.monotonic()
        found.append(survivors(module, count, seed))
        print(tally(f"{module}: ", [found[-1]]), f"({time.monotonic() - begun:.0f} s)", flush=True)
    print(tally("in all ", found))


def tally(name, found):
    made, idle, left = (sum(column) for column in zip(*found, strict=True))
    killed = made - idle - left
    return f"{name}{killed} of {made} killed, {idle} change nothing, {left} survive: {killed / (made - idle):.1%}"


if __name__ == "__main__":
    given = argparse.ArgumentParser()
    given.add_argument("--each", type=int, default=20)
    given.add_argument("--seed", type=int, default=7)
    given.add_argument("modules", nargs="*")
    options = given.parse_args()
    main(options.each, options.seed, options.modules)
