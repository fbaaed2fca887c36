"""What a system may lack: modules and functions that only POSIX or Linux has."""

import os
import subprocess
import sys

SCRIPT = """
import os, sys, builtins

for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None  # importing it fails
for name in ("sched_getaffinity", "posix_fallocate", "O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY", "getuid", "geteuid"):
    vars(os).pop(name, None)
plain_open = builtins.open

def without_proc(path, *arguments, **named):
    if str(path).startswith(("/proc", "/sys")):
        raise FileNotFoundError(path)
    return plain_open(path, *arguments, **named)

builtins.open = without_proc

import peakrl

problem = peakrl.problems.energy_harvesting(horizon=3, battery=3, max_arrival=2)
learner = peakrl.learners.PosteriorSampling()
model = peakrl.compile_model(problem)
solution = peakrl.solve(model)
assert peakrl.solve(model, policy_file="solution.policy").value == solution.value
run = peakrl.learn(model, learner, episodes=50, seed=1, checkpoint="checkpoint.run")
assert peakrl.evaluate(model, run.policy).value <= solution.value + 1e-9
assert peakrl.certify(model, solution.policy).holds
run.save("a.run")
assert peakrl.load("a.run").episodes == peakrl.resume("a.run", episodes=50).episodes == 50
model.save("a.model")
assert peakrl.load("a.model").digest == model.digest
assert [each.episodes for each in peakrl.learn_many(model, learner, episodes=20, seeds=[1, 2])] == [20, 20]
assert peakrl.safe_set(model) is not None
print(solution.value)
"""


def test_everything_in_one_process_runs_without_what_only_posix_has(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
