"""The certified policy in states that were not visited: what it does there belongs to it, wherever it goes."""

import json
import shutil
import subprocess

import gymnasium
import pytest

import peakrl
from peakrl import Assumptions, ConstrainedEnv
from peakrl.errors import UnknownStateError
from peakrl.learners import Certified

EPSILON = 0.1


class Crowd(gymnasium.Env):
    """One of 2^31 states, hardly ever the same: of three actions only `safe` violates nothing."""

    observation_space, action_space = gymnasium.spaces.Discrete(2**31), gymnasium.spaces.Discrete(3)

    def __init__(self, safe=0, masked=False):
        self.safe, self.masked = safe, masked

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen()

    def step(self, action):
        return *self._seen()[:1], 0.0, False, False, {"constraints": 0.0 if action == self.safe else -1.0}

    def _seen(self):
        shown = int(self.np_random.integers(2**31))
        return shown, {"action_mask": [shown % 2, 1, 1]} if self.masked else {}


def certified(safe=0, masked=False, **assumptions):
    env = ConstrainedEnv(Crowd(safe, masked), horizon=1, reward_range=(0, 0.01), constraint_bounds=(1.0,))
    run = peakrl.learn(env, Certified(EPSILON), episodes=2000, assumptions=Assumptions(**assumptions))
    assert run.certificate.holds
    return env, run


def only_the_last(step, state, action):
    return 0.0 if action == 2 else -1.0


CASES = {
    "the first action": certified,
    "the action that is known to be safe": lambda: certified(safe=2, constraint_depends_on="action"),
    "what is declared": lambda: certified(safe=2, constraints=only_the_last),
}


@pytest.mark.parametrize("case", CASES)
def test_the_policy_that_is_followed_is_the_one_that_is_certified(case):
    env, run = CASES[case]()
    right = env.unwrapped.safe
    found = peakrl.simulate(env, run.policy, episodes=300)
    assert (found.violation, found.unknown_steps) == (0.0, 0)
    assert run.policy.action(0, -1) == right
    assert peakrl.rollout(env, run.policy)[0].action == right
    assert peakrl.certify(env, run.policy, episodes=100, seed=1).holds
    assert any("a state that was not visited" in line for line in run.certificate.rests_on)


def test_a_file_holds_it_unless_it_depends_on_a_declared_function(tmp_path):
    for case, known in (("the action that is known to be safe", True), ("what is declared", False)):
        env, run = CASES[case]()
        run.policy.save(tmp_path / "policy")
        loaded = peakrl.load(tmp_path / "policy")
        if known:
            assert peakrl.simulate(env, loaded, episodes=50).violation == 0
            continue
        with pytest.raises(UnknownStateError, match="declared functions, which a file does not hold"):
            loaded.action(0, -1)
        run.save(tmp_path / "run")
        again = peakrl.load(tmp_path / "run", assumptions=Assumptions(constraints=only_the_last))
        assert again.policy.action(0, -1) == 2


def test_of_the_available_actions_the_first_is_taken():
    env, run = certified(safe=1, masked=True, constraint_depends_on="action")
    assert peakrl.simulate(env, run.policy, episodes=100).violation == 0
    assert run.policy.action(0, -1, [0, 2]) == 2 or run.policy.action(0, -1, [2]) == 2


def test_json_and_c_hold_it(tmp_path):
    _, run = CASES["the action that is known to be safe"]()
    head = json.loads(run.policy.to_json())["fallback"]
    assert head["actions"][0] == 2
    assert head["limited_by_declarations"] is False
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    text = run.policy.to_c(tmp_path / "policy.h")
    assert "fallback" in text
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "policy.h"\n'
        'int main(void) { printf("%d %d %d", policy_action(0, -5), policy_action(1, -5), policy_action(-1, -5)); }\n'
    )
    subprocess.run(["cc", "-o", tmp_path / "main", tmp_path / "main.c"], check=True)
    shown = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert shown == "2 -1 -1"


class Stairs(Crowd):
    """Two steps; the first shows one of 20 states, the second one of 2,000."""

    def _seen(self):
        self.second = not getattr(self, "second", True)
        shown = int(self.np_random.integers(2000 if self.second else 20))
        return shown, {"action_mask": [shown % 2, 1, 1]} if self.masked else {}

    def reset(self, *, seed=None, options=None):
        self.second = True
        return super().reset(seed=seed)


def test_a_state_that_is_known_from_another_step_avoids_what_violated_there(tmp_path):
    env = ConstrainedEnv(Stairs(safe=2), horizon=2, reward_range=(0, 0.01), constraint_bounds=(1.0,))
    pairs = Assumptions(constraint_depends_on="pair")
    run = peakrl.learn(env, Certified(EPSILON), episodes=200, assumptions=pairs)
    policy = run.policy
    elsewhere = sorted(set(range(20)) - set(policy.table(1)))
    assert len(elsewhere) > 10
    actions = [policy.action(1, state) for state in elsewhere]
    assert set(actions) > {2}  # found out at the first step
    assert all(policy.explain(0, state)[0].violates for state, action in zip(elsewhere, actions, strict=True) if action)
    unmet = min(set(range(2000)) - set(policy.table(0)) - set(policy.table(1)))
    assert policy.action(1, unmet) == 0
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    policy.to_c(tmp_path / "policy.h")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "policy.h"\n'
        "int main(void) { int h, s; for (h = 0; h < 2; h++) for (s = 0; s < 2000; s++)"
        ' printf("%d ", policy_action(h, s)); return 0; }\n'
    )
    subprocess.run(["cc", "-o", tmp_path / "main", tmp_path / "main.c"], check=True)
    shown = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split()
    assert list(map(int, shown)) == [policy.action(step, state) for step in range(2) for state in range(2000)]


def test_where_actions_depend_on_the_state_the_header_says_which_order_is_whose(tmp_path):
    """A state known from another step prefers what satisfied its constraints there to the order of all others."""
    env = ConstrainedEnv(Stairs(2, masked=True), horizon=2, reward_range=(0, 0.01), constraint_bounds=(1.0,))
    run = peakrl.learn(env, Certified(EPSILON), episodes=200, assumptions=Assumptions(constraint_depends_on="pair"))
    orders = json.loads(run.policy.to_json())["fallback"]
    assert any(each["actions"] != orders["actions"] for each in orders["states"])
    said = run.policy.to_c(tmp_path / "policy.h")
    assert f"take the first of these actions that is available: {orders['actions']}" in said
    assert 'order of their own: "states" in to_json()' in said
