"""A declared map s' = g(s, a, noise) on environments: true certificates for fewer episodes, and lies that are seen."""

from __future__ import annotations

import gymnasium
import pytest
from gymnasium import spaces

import peakrl
from helpers.certified_problems import share_of_best
from peakrl import Assumptions, Outcome, Policy, Problem, compile_model, evaluate, solve
from peakrl.certificates.verify import verify
from peakrl.errors import PolicyError, SettingsError, TargetError
from peakrl.learners import Certified

#: How likely each noise of `Shop` is; the last breaks it, which ends the episode.
CHANCES = (0.5, 0.3, 0.15, 0.05)
LEVELS, NOISES, STEPS = 4, len(CHANCES), 4


def restocked(state, action, noise):
    """Where a noise leads: the level that the action leaves, and what is asked for next; the last one is the end."""
    level, asked = state
    return None if noise == NOISES - 1 else (min(LEVELS - 1, max(level - asked, 0) + action), noise)


def sold(state, action):
    """Reward and constraint: what is sold less what ordering costs; no more may be ordered than fits in."""
    level, asked = state
    return min(level, asked) - 0.3 * action, 1.0 if level + action <= LEVELS else -1.0


class ShopProblem(Problem):
    """A shelf as a problem: an episode that has ended stays where it is and earns nothing."""

    horizon, reward_range, stationary = STEPS, (-1.0, 3.0), True
    constraint_names, constraint_bounds = ("shelf",), (1.0,)

    def initial(self):
        return [(1.0, (0, 1))]

    def actions(self, step, state):
        return [0, 1, 2] if state != "over" else [0]

    def outcomes(self, step, state, action):
        if state == "over":
            return [Outcome(1.0, "over", 0.0, (1.0,))]
        reward, limit = sold(state, action)
        after = [restocked(state, action, noise) or "over" for noise in range(NOISES)]
        return [Outcome(chance, state, reward, (limit,)) for chance, state in zip(CHANCES, after, strict=True)]


class Shop(gymnasium.Env):
    """The same as an environment, which shows (level, asked)."""

    observation_space = spaces.MultiDiscrete([LEVELS, NOISES - 1])
    action_space = spaces.Discrete(3)

    def __init__(self, stationary=True):
        self.metadata = {
            "peakrl": {"horizon": STEPS, "reward_range": (-1.0, 3.0), "constraint_bounds": (1.0,),
                       "stationary": stationary}
        }  # fmt: skip

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = (0, 1)
        return self.state, {}

    def step(self, action):
        reward, limit = sold(self.state, int(action))
        after = restocked(self.state, int(action), int(self.np_random.choice(NOISES, p=CHANCES)))
        self.state = self.state if after is None else after
        return self.state, reward, after is None, False, {"constraints": limit}


MODEL = compile_model(ShopProblem())
MAP = {"rewards": True, "dynamics": (restocked, tuple(range(NOISES)))}


def certified(env, assumptions, epsilon=0.5, episodes=20_000, **given):
    settings, given = Certified(share_of_best(MODEL, epsilon)), {"history": "none", "average": False} | given
    return peakrl.learn(env, settings, episodes=episodes, assumptions=assumptions, seed=3, **given)


def on_model(policy):
    """The policy on the model; in states never met it takes the first action."""

    def rule(step, state):
        try:
            return policy.action(step, state) if state != "over" else 0
        except PolicyError:
            return 0

    return Policy.from_rule(MODEL, rule)


@pytest.mark.parametrize("stationary", [True, False])
def test_a_map_makes_true_certificates_cheaper_and_verify_accepts_them(stationary, tmp_path):
    epsilon = 0.5 if stationary else 0.8
    best, run = solve(MODEL).value, certified(Shop(stationary), Assumptions(**MAP), epsilon)
    certificate, judged = run.certificate, evaluate(MODEL, on_model(run.policy))
    assert certificate.holds
    assert certificate.value_low <= judged.value
    assert certificate.optimum_high >= best
    assert best - judged.value <= certificate.gap <= certificate.epsilon
    assert judged.violation <= certificate.violation_high
    assert any("noise" in line for line in certificate.rests_on)
    certificate.save(tmp_path / "certificate")
    assert verify(tmp_path / "certificate").holds
    # Without the map it takes five times as many.
    assert certified(Shop(stationary), Assumptions(rewards=True), epsilon, run.episodes).stop_reason is None


class Fork(gymnasium.Env):
    """From 0, action 0 leads to 1 or 2, which are worth nothing, and action 1 to 3 or 4, which are worth 1."""

    observation_space, action_space = spaces.Discrete(5), spaces.Discrete(2)
    metadata = {  # noqa: RUF012  Gymnasium has it so
        "peakrl": {"horizon": 2, "reward_range": (0.0, 1.0), "constraint_bounds": (1.0,), "stationary": True}
    }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        reward, self.state = float(self.state > 2), forked(self.state, int(action), int(self.np_random.integers(2)))
        return self.state, reward, False, False, {"constraints": 1.0}


def forked(state, action, noise):
    """Where the noise leads."""
    return 1 + noise + (2 * action if state == 0 else 0)


def test_what_a_map_leads_to_may_be_worth_anything_until_it_is_met():
    # The first episode takes action 0, and shows two noises; were 3 and 4 then taken for worthless, U would be 0.97.
    declared = Assumptions(rewards=lambda step, state, action: float(state > 2), dynamics=(forked, (0, 1)))
    run = peakrl.learn(Fork(), Certified(0.01), episodes=1, assumptions=declared, history="none")
    rounds, untried = run._trainer.algorithm, 1  # the row of action 1 in state 0, which was met first
    rounds.settle()
    assert rounds.fresh().upper[untried, 0] >= 1.0


def test_a_run_cut_anywhere_and_resumed_is_the_same_bit_for_bit(tmp_path):
    assumptions, path = Assumptions(**MAP), tmp_path / "run"
    whole = certified(Shop(), assumptions, (0.5, 0.2), 600, history=50)
    for cut in (1, 60, 333):
        certified(Shop(), assumptions, (0.5, 0.2), cut, history=50).save(path)
        again = peakrl.resume(path, env=Shop(), episodes=600, assumptions=assumptions)
        assert (again.episodes, again.stop_reason) == (whole.episodes, whole.stop_reason)
        assert again.certificate == whole.certificate
        assert again.q.tobytes() == whole.q.tobytes()


def test_a_run_of_one_episode_is_kept_and_read(tmp_path):
    certified(Shop(), Assumptions(**MAP), (0.5,), 1).save(tmp_path / "run")
    again = peakrl.resume(tmp_path / "run", env=Shop(), episodes=2, assumptions=Assumptions(**MAP))
    assert again.episodes == 2


def test_a_step_that_no_noise_explains_ends_the_run_with_the_observation():
    def otherwise(state, action, noise):
        return restocked(state, min(action, 1), noise)  # of two that are ordered one arrives

    def endless(state, action, noise):
        return restocked(state, action, noise) or (0, 7)

    for rule, led in ((otherwise, r"led to \(2, \d\), which no noise"), (endless, "led to the end, which no noise")):
        with pytest.raises(TargetError, match=rf"episode \d+, step \d: state .* {led}.*it can lead to \("):
            certified(Shop(), Assumptions(rewards=True, dynamics=(rule, tuple(range(NOISES)))))


def test_noises_that_cannot_be_told_apart_are_named():
    same = Assumptions(rewards=True, dynamics=(lambda state, action, noise: (0, min(noise, 1)), (0, 1, 2)))
    with pytest.raises(TargetError, match=r"state \(0, 1\), action 0 to \(0, 1\) by the noises 1 and 2"):
        certified(Shop(), same)


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"rewards": None}, "dynamics is declared, but rewards may depend on the outcome"),
        ({"dynamics": (restocked, ())}, "dynamics names no noises"),
        ({"deterministic": True}, "deterministic says that there is no noise"),
    ],
)
def test_what_a_map_cannot_go_with_is_refused(declared, says):
    with pytest.raises(SettingsError, match=says):
        certified(Shop(), Assumptions(**{**MAP, **declared}))


def test_a_map_needs_to_know_how_many_states_there_can_be():
    shop = Shop()
    shop.observation_space = spaces.MultiDiscrete([2**30, 2**30])
    with pytest.raises(
        SettingsError, match=r"dynamics needs an upper bound on the number of states.*Assumptions\(states="
    ):
        certified(shop, Assumptions(**MAP))
    assert certified(shop, Assumptions(states=12, **MAP), episodes=50).certificate.optimum_high is not None
