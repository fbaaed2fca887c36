"""How long reading a large run takes, against plain reading of the same bytes: digest and arrays, nothing checked.

    python tests/reading_times.py [--states N] [--horizon H] [--learner posterior] [--repeats 5]

Makes a random sparse model with four actions a state and two outcomes each, learns for 200 episodes, saves the run to
a temporary file, and reads that in turns; processor seconds, the least and the median. With the PYTHONPATH of another
version of peakrl it tells how long that one takes.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load
from scipy import sparse

from peakrl import LearnerSettings, TabularModel, learn, load_run

ACTIONS, EPISODES = 4, 200
LEARNERS = ("practical", "posterior")


def random_model(states, horizon):
    rng = np.random.default_rng(0)
    pairs = states * ACTIONS
    share = rng.uniform(0.1, 0.9, pairs)
    following = rng.integers(0, states // 2, pairs)[:, None] + [0, states // 2]
    laws = np.column_stack([share, 1 - share]).ravel(), following.ravel(), np.arange(pairs + 1) * 2
    transitions = sparse.csr_matrix(laws, shape=(pairs, states))
    rewards, constraint = rng.random((states, ACTIONS)), rng.uniform(-0.1, 1.0, (1, states, ACTIONS))
    return TabularModel.from_arrays(transitions, rewards, constraint, horizon)


def read_plainly(path):
    """Read a file, work out its digest and take the arrays apart."""
    with open(path, "rb") as file:
        file.readline(), file.readline()
        head, payload = file.readline(), file.read()
    digest = hashlib.blake2b(head, digest_size=32)
    digest.update(payload)
    return digest.hexdigest(), load(payload)


def read_with_policy(path):
    """Read a run and ask for its policy, which is made then."""
    return load_run(path).policy


def seconds(action, path):
    begun = time.process_time()
    action(path)
    return time.process_time() - begun


def main(states, horizon, learner, repeats):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        settings = getattr(LearnerSettings, learner)()
        learn(random_model(states, horizon), settings, episodes=EPISODES, record="none").save(path)
        print(f"{path.stat().st_size / 1e6:.0f} MB, {learner}, {states:,} states, {horizon} steps")
        actions = {"load_run": load_run, "load_run and run.policy": read_with_policy, "plain reading": read_plainly}
        found = {name: [] for name in actions}
        read_with_policy(path)  # kernels are compiled
        for _ in range(repeats):
            for name, action in actions.items():
                found[name].append(seconds(action, path))
        for name, times in found.items():
            print(f"{name}: {min(times):.2f} s at least, {statistics.median(times):.2f} s in the middle")


if __name__ == "__main__":
    given = argparse.ArgumentParser()
    given.add_argument("--states", type=int, default=100_000)
    given.add_argument("--horizon", type=int, default=45)
    given.add_argument("--learner", choices=LEARNERS, default="practical")
    given.add_argument("--repeats", type=int, default=5)
    options = given.parse_args()
    main(options.states, options.horizon, options.learner, options.repeats)
