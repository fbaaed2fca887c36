"""Mutation testing: break one place of the code at a time (`mutants.py`), and see whether a test notices.

    python tests/mutation.py [--each NUMBER OF MUTANTS OF A MODULE] [--seed SEED] [MODULE ...]

Mutants are drawn with the seed. The JIT is off, so that kernels are plain Python. The modules' tests are collected and
run once, which tells which of them call which function; then each mutant is tried in a forked process, which runs
those of its module's tests that call its function until one fails: first those that have killed most, then the
quickest. Tests that start processes of their own, or take too long without the JIT, are left out, and said so. A
mutant that makes a test fail, or compute five times as long as it should, is killed. Survivors are printed with their
line: each lacks a test, or changes nothing that anybody could notice. Those of the second kind that somebody has
looked at are in `mutation_survivors.py`, with the reason, and are counted by themselves.
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
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from mutants import Source, put_in
from mutation_survivors import HARMLESS

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
#: Tests of several modules.
PLANS = ["planning/test_planning.py", "planning/test_backward.py", "planning/test_settling.py"]
BUDGETS = ["planning/test_budgets.py", "planning/test_relaxed.py", "model/test_one_limit.py"]
VERIFIED = ["certificates/test_verify.py", "certifying/test_certify.py"]
CERTIFIED = [
    "kernels/test_certified.py", "learning/test_certified.py", "learning/test_learning.py",
    "certificates/test_verify_learned.py",
]  # fmt: skip
FORGED = ["learning/test_forged_runs.py", "learning/test_checkpoint_environments.py"]
LEARNED = ["learning/test_learning.py", "learning/test_environments.py", "learning/test_sampled_history.py"]
PRACTICAL = [
    "learning/test_practical.py", "learning/test_learning.py", "learning/test_safe_policy.py",
    "learning/test_limits.py",
]  # fmt: skip
COUNTED = [
    "learning/test_ucbvi.py", "learning/test_learning.py", "learning/test_linear.py", "learning/test_primal_dual.py",
]  # fmt: skip
EVALUATED = [
    "evaluation/test_evaluation.py", "evaluation/test_exact_arithmetic.py", "model/test_tolerances.py",
    "evaluation/test_unknown_states.py",
]  # fmt: skip
POSTERIOR = ["learning/test_posterior.py", "learning/test_learning.py", "learning/test_safe_policy.py"]
MODELS = ["model/test_soundness.py", "model/test_model_files.py"]
FILES = [
    "test_storage.py",
    "test_failing_disk.py",
    "model/test_model_files.py",
    "policy/test_policy_files.py",
    "test_edges.py",
]
#: Each module with the tests that must notice.
TARGETS = {
    "peakrl/storage.py": FILES,
    "peakrl/model/soundness.py": MODELS,
    "peakrl/model/files.py": MODELS,
    "peakrl/model/visited_files.py": ["model/test_visited_files.py"],
    "peakrl/policy/files.py": FILES,
    "peakrl/learning/practical_checks.py": FORGED,
    "peakrl/learning/posterior_checks.py": FORGED,
    "peakrl/learning/certified/checks.py": [*FORGED, "learning/test_outcome_maps.py"],
    "peakrl/certificates/bounds.py": ["certificates/test_bounds.py"],
    "peakrl/certificates/verify_exact.py": VERIFIED,
    "peakrl/certificates/verify_model.py": VERIFIED,
    "peakrl/certificates/verify_sampled.py": VERIFIED,
    "peakrl/certificates/verify_learned.py": CERTIFIED,
    "peakrl/planning/exact.py": PLANS,
    "peakrl/planning/backward.py": PLANS,
    "peakrl/planning/settling.py": PLANS,
    "peakrl/planning/keeping.py": PLANS,
    "peakrl/planning/budgets.py": BUDGETS,
    "peakrl/kernels/backward.py": PLANS,
    "peakrl/kernels/settling.py": PLANS,
    "peakrl/kernels/planning.py": [*BUDGETS, "learning/test_linear.py", "planning/test_planning.py"],
    "peakrl/kernels/priced_plans.py": [*BUDGETS, "learning/test_linear.py"],
    "peakrl/kernels/safety.py": ["safety/test_safe_set.py", "learning/test_safe_policy.py"],
    "peakrl/kernels/sampling.py": ["kernels/test_sampling.py"],
    "peakrl/kernels/simulation.py": ["evaluation/test_simulation.py", "evaluation/test_rollouts.py"],
    "peakrl/kernels/evaluation.py": EVALUATED,
    "peakrl/kernels/curve.py": EVALUATED,
    "peakrl/kernels/reachability.py": ["model/test_model.py", "policy/test_policy.py", "learning/test_linear.py"],
    "peakrl/kernels/lists.py": ["kernels/test_lists.py"],
    "peakrl/kernels/learning.py": LEARNED,
    "peakrl/kernels/practical.py": PRACTICAL,
    "peakrl/kernels/practical_updates.py": PRACTICAL,
    "peakrl/kernels/posterior.py": POSTERIOR,
    "peakrl/kernels/counting.py": COUNTED,
    "peakrl/kernels/following.py": COUNTED,
    "peakrl/kernels/primal_dual.py": COUNTED,
    "peakrl/kernels/triple_q.py": ["learning/test_q_tables.py", "learning/test_limits.py"],
    "peakrl/kernels/untried.py": ["learning/test_untried.py"],
    "peakrl/kernels/certified/bounds.py": CERTIFIED,
    "peakrl/kernels/certified/values.py": CERTIFIED,
    "peakrl/kernels/certified/gaps.py": CERTIFIED,
    "peakrl/kernels/certified/candidates.py": CERTIFIED,
    "peakrl/kernels/certified/episodes.py": CERTIFIED,
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
#: Seconds that a test may compute without the JIT: one that takes longer is left out; if so many of its cases do, all
#: further ones are.
PATIENCE, SLOW_CASES = 2, 2


class TooLong(Exception):
    """A test computes for more seconds than there is patience."""


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
    """What pytest is given in place of running tests: the mutants of modules, each tried by those tests."""

    def __init__(self, modules, count, seed):
        self.modules = {module: Source(SOURCE / module) for module in modules}
        self.count, self.seed = count, seed
        #: [test]: seconds, and the functions that it calls: (file, name).
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, set[tuple[str, str]]] = {}
        self.kills: Counter[str] = Counter()
        #: [test without its case]: how many cases took too long.
        self.slow: Counter[str] = Counter()
        #: Seconds that the tests of the module at hand take.
        self.all = 0.0
        self.found: list[tuple[int, int, int]] = []

    def pytest_configure(self, config):
        """Nobody reads how a test failed, and what is cut off anywhere has no line that pytest could show."""
        config.option.tbstyle = "native"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self):
        """The same examples every time; which of them is the simplest one to fail nobody asks."""
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", settings(), derandomize=True, database=None, phases=phases)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session):
        vars(subprocess)["Popen"] = refuse
        self.items = {item.nodeid: item for item in session.items}
        for module in self.modules:
            importlib.import_module(name_of(module))
        for item in session.items:
            self.look_at(item)
        for module, source in self.modules.items():
            self.found.append(self.try_all(module, source))
        return True

    def look_at(self, item):
        """Run a test on the code as it is; note how long it takes and what it calls."""
        called, paths, begun = set(), {str(source.path) for source in self.modules.values()}, time.process_time()
        name = item.nodeid.split("[")[0]
        if self.slow[name] >= SLOW_CASES:
            return

        def note(frame, event, argument):
            if frame.f_code.co_filename in paths:
                called.add((frame.f_code.co_filename, frame.f_code.co_name))

        signal.signal(signal.SIGPROF, give_up)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE, 1)
        sys.settrace(note)
        try:
            failed = failures(item)
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
        if failed:
            self.slow[name] += 1
            leave_out(item.nodeid, failed[0].longreprtext.strip().splitlines()[-1])
        else:
            self.seconds[item.nodeid], self.calls[item.nodeid] = time.process_time() - begun, called

    def try_all(self, module, source):
        """Return how many mutants were tried, how many survive and change nothing, and how many survive."""
        numbers, begun = list(range(len(source.places))), time.monotonic()
        self.all = sum(seconds for test, seconds in self.seconds.items() if belongs(test, module))
        random.Random(f"{self.seed} {module}").shuffle(numbers)
        chosen, reasons, idle, left = numbers[: self.count], HARMLESS.get(module, {}), 0, 0
        for number in chosen:
            if self.kill(module, source, number):
                continue
            name, line = source.names[number], source.places[number].node.lineno
            idle, left = (idle + 1, left) if name in reasons else (idle, left + 1)
            reason = f"  ({reasons[name]})" if name in reasons else ""
            print(f"  {module} line {line} in {name}{reason}", flush=True)
        found = len(chosen), idle, left
        print(tally(f"{module}: ", [found]), f"({time.monotonic() - begun:.0f} s)", flush=True)
        return found

    def kill(self, module, source, number):
        """Try a mutant; return whether a test notices."""
        place = source.places[number]
        if not place.within:
            return self.tried(lambda write: self.fresh(module, source, number))[0]
        called = str(source.path), place.function
        while True:
            tests = [test for test, calls in self.calls.items() if called in calls and belongs(test, module)]
            tests.sort(key=lambda test: (-self.kills[test], self.seconds[test]))
            killed, killer = self.tried(lambda write, tests=tests: self.swapped(module, source, number, tests, write))
            # What a test says that fails by itself, the second time that it is run, is worth nothing.
            if killer and not self.kills[killer] and self.tried(lambda write, test=killer: self.run([test], write))[0]:
                leave_out(killer, "it fails when it is run once more")
                del self.calls[killer]
                continue
            self.kills[killer] += 1
            return killed

    def tried(self, attempt):
        """Run something in a process of its own; return whether a test fails there, and which."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            status = KILLED
            try:
                quiet()
                status = attempt(write)
            finally:
                os._exit(status)
        os.close(write)
        killed = waited(child, 300 + 20 * self.all)
        with os.fdopen(read) as pipe:
            return killed, pipe.read()

    def swapped(self, module, source, number, tests, write):
        """Give the function its broken code, and run tests until one fails."""
        put_in(sys.modules[name_of(module)], source.code(number), source.places[number].within)
        return self.run(tests, write)

    def run(self, tests, write):
        """Run tests until one fails."""
        for test in tests:
            signal.signal(signal.SIGPROF, lambda *_, test=test: told(write, test))
            signal.setitimer(signal.ITIMER_PROF, 3 + 5 * self.seconds[test])
            if failures(self.items[test]):
                told(write, test)
        return SURVIVED

    def fresh(self, module, source, number):
        """Import everything anew with what belongs to no function broken, and run all tests."""
        for name, loaded in list(sys.modules.items()):
            path = getattr(loaded, "__file__", None)
            if path is not None and Path(path).is_relative_to(TESTS.parent) and name != "__main__":
                del sys.modules[name]
        sys.meta_path.insert(0, Mutated(name_of(module), source.path, source.code(number)))
        signal.signal(signal.SIGPROF, lambda *_: os._exit(KILLED))
        signal.setitimer(signal.ITIMER_PROF, 30 + 5 * self.all)
        slow = [test for test in self.items if test not in self.calls and belongs(test, module)]
        slow = [part for test in slow for part in ("--deselect", test)]
        return int(pytest.main(["-x", *OPTIONS, *slow, *paths_of(TARGETS[module])]) != 0)


def belongs(test, module):
    """Is a test, by its id, among those that must notice what is wrong with a module?"""
    return test.split("::")[0].removeprefix(f"{TESTS.name}/") in TARGETS[module]


def name_of(module):
    return module.removesuffix(".py").replace("/", ".")


def refuse(*_, **__):
    raise OSError("a process of its own would know nothing of what is broken here")


def leave_out(test, why):
    print(f"  {test} is left out: {why}", flush=True)


def failures(item):
    """Run a test; return what fails of it."""
    from _pytest.runner import runtestprotocol

    return [report for report in runtestprotocol(item, log=False, nextitem=None) if report.failed]


def give_up(*_):
    raise TooLong


def told(write, test):
    """End the process, having said which test failed."""
    os.write(write, test.encode())
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


def paths_of(tests):
    return [str(TESTS / test) for test in tests]


def main(count, seed, modules):
    sys.path[:0] = [str(SOURCE), str(TESTS)]
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    modules = modules or list(TARGETS)
    tests = sorted({test for module in modules for test in TARGETS[module]})
    trial = Trial(modules, count, seed)
    pytest.main(["-s", *OPTIONS, *paths_of(tests)], plugins=[trial])
    if len(trial.found) < len(modules):
        raise SystemExit("the tests could not be run")
    print(tally("in all ", trial.found))


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
