"""Runs on environments in files: cut and resumed they equal the uncut run, where randomness comes from the seed."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from peakrl import Assumptions, ConstrainedEnv, learn, resume, to_gymnasium
from peakrl.errors import StorageError
from peakrl.learners import ConstrainedQ, SafeQ
from peakrl.problems import energy_harvesting
from peakrl.records import read_record, write_record
from peakrl.specs.functions import described, same
from peakrl.training import load_run
from peakrl.training.trainer import Trainer

SETTINGS = {
    "practical": SafeQ(),
    "paper": ConstrainedQ.paper(0.25),
    "published": ConstrainedQ.published(0.25),
}


def transmitter():
    return to_gymnasium(energy_harvesting(horizon=4, battery=3, max_arrival=2, mean=1, std=1, peak_power=2))


def lake():
    """FrozenLake: holes must not be stepped into."""
    return gymnasium.make("FrozenLake-v1", is_slippery=True)


LAKE = {
    "horizon": 12,
    "reward_range": (0.0, 1.0),
    "constraint": lambda transition: -1.0 if transition.terminated and not transition.reward else 1.0,
    "constraint_bounds": [1.0],
}


def differences(run, other):
    """Return the names of everything that tells two runs apart, bit by bit."""
    names = ("episodes", "seed", "settings", "violations", "last_violation_episode", "feasible")
    found = [name for name in names if getattr(run, name) != getattr(other, name)]
    pairs = {"q": (run.q, other.q), "policy": (run.policy.rows, other.policy.rows)}
    pairs |= {name: (array, getattr(other.history, name)) for name, array in run.history.columns().items()}
    for name in ("change_episode", "change_node", "change_row"):
        pairs[name] = (getattr(run.averaged_policy, name), getattr(other.averaged_policy, name))
    found += [name for name, (one, two) in pairs.items() if one.tobytes() != two.tobytes()]
    return found if list(run.model.state_labels) == list(other.model.state_labels) else [*found, "states"]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(("make", "declared"), [(transmitter, {}), (lake, LAKE)], ids=["transmitter", "lake"])
def test_a_run_on_an_environment_cut_anywhere_equals_the_uncut_run(name, make, declared, tmp_path):
    chosen, rng = SETTINGS[name], np.random.default_rng(3)
    whole = learn(ConstrainedEnv(make(), **declared), chosen, episodes=60, seed=5)
    for number in range(4):
        path = tmp_path / f"{number}.run"
        learner = learn(ConstrainedEnv(make(), **declared), chosen, episodes=60, seed=5)._trainer
        cut = int(rng.integers(1, 60))
        begun = Trainer(learner.target, chosen, planned=60, seed=5, every=learner.recorder.every)
        begun.advance(cut)
        begun.result().save(path)
        assert differences(load_run(path), load_run(path, ConstrainedEnv(make(), **declared))) == []
        assert load_run(path).episodes == cut
        resume(path, env=ConstrainedEnv(make(), **declared), episodes=min(60, cut + 7))
        assert differences(whole, resume(path, env=ConstrainedEnv(make(), **declared))) == []


def test_learning_again_with_the_same_checkpoint_goes_on_from_it(tmp_path, checkpoint_every):
    path, chosen = tmp_path / "run", SafeQ()
    whole = learn(transmitter(), chosen, episodes=40)
    checkpoint_every(15)
    run = learn(transmitter(), chosen, episodes=40, checkpoint=path)
    assert differences(whole, run) == []
    assert differences(whole, learn(transmitter(), chosen, episodes=40, checkpoint=path)) == []
    with pytest.raises(StorageError, match="a different seed"):
        learn(transmitter(), chosen, episodes=40, seed=1, checkpoint=path)


def test_what_was_learned_before_an_environment_failed_is_saved(tmp_path):
    class Failing(gymnasium.Wrapper):
        steps = 0

        def step(self, action):
            self.steps += 1
            if self.steps > 100:
                raise OSError("the simulator is gone")
            return super().step(action)

    path, chosen = tmp_path / "run", SafeQ()
    with pytest.raises(Exception, match="the simulator is gone") as failed:
        learn(Failing(transmitter()), chosen, episodes=60, checkpoint=path)
    assert load_run(path, transmitter()).episodes == failed.value.run.episodes == 25
    assert failed.value.__notes__ == [f"the 25 episodes before it are in {path}"]
    assert differences(learn(transmitter(), chosen, episodes=60), resume(path, env=transmitter())) == []


def test_a_run_on_an_environment_is_read_without_it_and_asks_for_it_to_go_on(tmp_path):
    path = tmp_path / "run"
    run = learn(transmitter(), SafeQ(), episodes=5)
    run.save(path)
    read = load_run(path)
    assert differences(run, read) == []
    assert list(read.model.action_labels) == list(run.model.action_labels)
    read.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    with pytest.raises(StorageError, match="pass that environment as env= to continue"):
        resume(path, episodes=9)
    with pytest.raises(StorageError, match="FrozenLake"):
        load_run(path, ConstrainedEnv(lake(), **LAKE))


def test_actions_of_several_components_are_read_back(tmp_path):
    class Switches(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(1)
        action_space = gymnasium.spaces.MultiDiscrete([2, 3], start=[5, 0])

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return 0, float(action[0] == 6), False, False, {"cost": float(action[1])}

    run = learn(ConstrainedEnv(Switches(), horizon=2, reward_range=(0, 1)), episodes=30)
    run.save(tmp_path / "run")
    read = load_run(tmp_path / "run")
    assert list(read.model.action_labels) == [(5, 0), (5, 1), (5, 2), (6, 0), (6, 1), (6, 2)]
    assert read.policy.action(0, 0) == run.policy.action(0, 0) == (6, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("horizon", 10**9), ("horizon", "4"), ("actions", [[0, 10**9]]), ("reward_range", [1, 0]),
        ("constraint_bounds", [-1.0]), ("states", 0),
    ],
)  # fmt: skip
def test_what_a_file_tells_of_its_environment_is_checked(name, value, tmp_path):
    path = tmp_path / "run"
    learn(transmitter(), episodes=5).save(path)
    plain, arrays = read_record(path, "learning run on an environment")
    plain["rules"][name] = value
    write_record(path, plain.pop("kind"), plain, arrays)
    with pytest.raises(StorageError, match=str(path)):
        load_run(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("constraint_bounds", (3.5e-4, 1.0)), ("constraint_tolerances", (0.1, 0.1)), ("horizon", 5),
        ("reward_range", (0, 2)), ("states", 7),
    ],
)  # fmt: skip
def test_a_run_is_not_continued_with_other_declarations_than_it_was_made_with(name, value, tmp_path):
    class Lamp(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Discrete(9), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return 0, float(action), False, False, {"constraints": (0.0, 0.0)}

    declared = {"horizon": 4, "reward_range": (0, 1), "constraint_bounds": (3.5, 1.0)}
    path = tmp_path / "run"
    learn(ConstrainedEnv(Lamp(), **declared), SafeQ(), episodes=10).save(path)
    assert load_run(path, ConstrainedEnv(Lamp(), **declared)).episodes == 10
    if name == "states":
        Lamp.metadata = {"peakrl": {"states": value}}
        other = ConstrainedEnv(Lamp(), **declared)
    else:
        other = ConstrainedEnv(Lamp(), **declared | {name: value})
    for use in (lambda: load_run(path, other), lambda: resume(path, env=other, episodes=20)):
        with pytest.raises(StorageError, match=f"{name}.*declare the same"):
            use()
    with pytest.raises(StorageError, match="a different environment"):
        learn(other, SafeQ(), episodes=10, checkpoint=path)


def test_a_run_is_not_continued_with_other_functions_than_it_was_made_with(tmp_path):
    """Each function has one name in both, and other code or another number that it refers to."""

    class Lamp(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Discrete(9), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return 0, float(action), False, False, {"constraints": (1.0,)}

    def env(most, name="constraint"):
        own = {} if most is None else {name: lambda transition: most - transition.action}
        return ConstrainedEnv(Lamp(), horizon=4, reward_range=(0, 1), constraint_bounds=(9.0,), **own)

    def declared(limit):
        return Assumptions(constraints=lambda step, state, action: limit - step)

    path = tmp_path / "run"
    learn(env(3.5), SafeQ(), episodes=10, assumptions=declared(9)).save(path)
    load_run(path, assumptions=declared(9)).save(path)
    assert resume(path, env=env(3.5), episodes=20, assumptions=declared(9)).episodes == 20
    for other in (env(2.5), env(None)):
        with pytest.raises(StorageError, match=r"constraint.*declare the same"):
            resume(path, env=other, episodes=30, assumptions=declared(9))
    with pytest.raises(StorageError, match="other assumptions"):
        resume(path, env=env(3.5), episodes=30, assumptions=declared(4))


def test_functions_of_another_version_of_python_are_compared_by_name():
    mine = described(lambda step: step)
    assert not same(mine, described(lambda step: step + 1))
    assert same(mine, described(lambda step: step + 1) | {"python": "3.1"})
    assert not same(mine, {"function": "another", "python": "3.1", "code": ""})


def test_a_vectorised_run_can_be_saved_and_continued(tmp_path):
    path = tmp_path / "run"
    env = SyncVectorEnv([transmitter, transmitter])
    learn(env, SafeQ(), episodes=20, checkpoint=path)
    run = resume(path, env=SyncVectorEnv([transmitter, transmitter]), episodes=60)
    assert (run.episodes, load_run(path, env).episodes) == (60, 60)
