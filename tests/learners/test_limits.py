"""Learning without one violation: what is declared to fail is never tried, and a false declaration is found out."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import naive
import peakrl
from experiments.neighbours import tiny_harvesting
from helpers.random_problems import RandomProblem, random_problem
from helpers.seeds import seeds
from helpers.shielded_environments import Corridor, CorridorProblem, holes, lake
from peakrl import Assumptions, ConstrainedEnv, compile_model, evaluate, learn, safe_set, solve
from peakrl.errors import SettingsError, TargetError
from peakrl.learners import Certified, ConstrainedQ, PosteriorSampling, SafeQ

LEARNERS = {
    "posterior": PosteriorSampling(),
    "practical": SafeQ(),
    "practical, no trials": SafeQ(trials=False),
    "certified": Certified(1e-6),
    "UCBVI": peakrl.learners.UCBVI(),
    "SUCBVI": peakrl.learners.SUCBVI(),
    "Algorithm 1": ConstrainedQ.published(0.1),
    "Algorithm 1, bernstein": ConstrainedQ.paper(0.1),
}
#: Those that would allow some violations on average.
LENIENT = {
    "Triple-Q": peakrl.learners.TripleQ(total=0.1),
    "OptCMDP": peakrl.learners.OptCMDP(total=0.1, scale=0.01),
    "OptCMDP, by step": peakrl.learners.OptCMDP(per_step=0.1, scale=0.1, bonus=True),
    "OptDual": peakrl.learners.OptDual(total=0.1),
    "OptPrimalDual": peakrl.learners.OptPrimalDual(total=0.1),
    "OPDOP": peakrl.learners.OptPrimalDual.opdop(total=0.1, slater=0.1, episodes=1000),
    "WeiMDP": peakrl.learners.WeiMDP(total=0.1),
}


def feasible_problem(seed, **options):
    """A random problem that has a safe policy, dead ends and unsafe actions."""
    for offset in range(1000):
        problem = random_problem(1000 * seed + offset, states=5, actions=3, horizon=5, **options)
        safe = safe_set(problem)
        if safe.feasible and (safe.model.keeps.reshape(1, -1) & ~safe.entries.reshape(-1, safe.model.num_rows)).any():
            return problem
    raise AssertionError("no such problem")


def with_other_chances(problem, seed):
    """The same possible outcomes, with other probabilities, and here and there one that does not really happen."""
    rng = np.random.default_rng(seed)
    tables = {}
    for key, outcomes in problem.tables.items():
        chances = rng.dirichlet(np.ones(len(outcomes)))
        tables[key] = [outcome._replace(probability=float(p)) for outcome, p in zip(outcomes, chances, strict=True)]
    return RandomProblem(**{**vars(problem), "tables": tables, "name": "support"})


@pytest.mark.parametrize(
    ("seed", "stationary", "learner"),
    [(place % 2, place % 2 == 0, learner) for place, learner in enumerate([*LEARNERS, *LENIENT])],
)
def test_with_a_declared_support_not_one_episode_violates(seed, stationary, learner):
    problem, settings = feasible_problem(seed, stationary=stationary), (LEARNERS | LENIENT)[learner]
    without = learn(problem, settings, episodes=200, seed=seed)
    assert without.violations > 0
    for support in (problem, with_other_chances(problem, seed)):
        run = learn(problem, settings, episodes=200, seed=seed, assumptions=Assumptions(support=support))
        assert run.violations == 0
        assert run.history.violation.max() == 0.0  # exactly, of every policy that was followed
        assert evaluate(problem, run.averaged_policy).violation_probability == 0.0


@pytest.mark.parametrize("learner", [peakrl.learners.DOPE, peakrl.learners.OptPessLP])
def test_a_safe_policy_on_average_is_kept_to_the_support_as_well(learner):
    problem = compile_model(tiny_harvesting())
    allowed = peakrl.solve_cmdp(problem, total=0.2)
    assert allowed.violation == pytest.approx(0.2)
    settings = learner(total=0.4, safe_policy=allowed.policy, scale=0.01)
    assert learn(problem, settings, episodes=300).violations > 0
    run = learn(problem, settings, episodes=300, assumptions=Assumptions(support=problem))
    assert run.violations == 0
    assert run.history.violation.max() == 0.0


@pytest.mark.parametrize("learner", ["Algorithm 1", "Triple-Q", "OptCMDP", "OptDual", "OptPrimalDual"])
def test_a_run_with_a_support_is_continued_as_if_it_had_not_been_cut(learner, tmp_path, checkpoint_every):
    problem = feasible_problem(1, stationary=True)
    known, settings = Assumptions(support=problem), (LEARNERS | LENIENT)[learner]
    whole = learn(problem, settings, episodes=60, assumptions=known)
    kept = {"checkpoint": tmp_path / "run", "assumptions": known}
    checkpoint_every(20)
    with pytest.raises(KeyboardInterrupt):
        learn(problem, settings, episodes=60, watch=interrupted, **kept)
    continued = peakrl.resume(tmp_path / "run", assumptions=known)
    assert continued.violations == 0
    assert np.array_equal(continued.history.value, whole.history.value)


def interrupted(view):
    """Ctrl-C after 40 episodes."""
    if view.episodes >= 40:
        raise KeyboardInterrupt


#: Episodes after which each learner has found the optimum of these small problems, with a support and without one.
ENOUGH = {"posterior": 5_000, "practical": 20_000, "Algorithm 1": 100_000}
FOUR = {
    "energy harvesting": lambda: peakrl.problems.energy_harvesting(
        horizon=8, battery=6, max_arrival=6, mean=3, std=2, peak_power=3
    ),
    "scheduling 2": lambda: peakrl.problems.scheduling_example(2),
    "a slippery lake": lambda: peakrl.from_gymnasium(lake(), horizon=20, constraint=holes),
    "a corridor": CorridorProblem,
}


def other_chances(model, seed):
    """The same model with other probabilities for what may happen."""
    layout, rng = model.layout, np.random.default_rng(seed)
    weights = rng.exponential(size=len(layout.outcome_probability)) + 1e-3
    sums = np.add.reduceat(weights, layout.outcome_start[:-1])
    chances = weights / np.repeat(sums, np.diff(layout.outcome_start))
    return replace(model, outcome_probability=chances)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "right"),
    [(learner, True) for learner in LEARNERS] + [(learner, False) for learner in ("certified", *ENOUGH)],
    ids=lambda value: {True: "right probabilities", False: "wrong probabilities"}.get(value, value),
)
@pytest.mark.parametrize("name", FOUR)
def test_a_thousand_seeds_without_one_violation(name, learner, right):
    model = compile_model(FOUR[name]())
    for block in range(10):  # wrong in ten ways
        known = Assumptions(support=model if right else other_chances(model, block))
        for seed in range(100 * block, 100 * block + 100):
            run = learn(
                model, LEARNERS[learner], episodes=100, seed=seed, assumptions=known, history="none", average=False
            )
            assert run.violations == 0


@pytest.mark.parametrize("learner", ENOUGH)
@seeds(4)
def test_the_optimum_is_reached_as_without_a_support(seed, learner):
    problem = feasible_problem(seed, stationary=True)
    best = solve(problem)
    # Without a support, Algorithm 1 may still prefer an action that violates after so many episodes.
    for known in (Assumptions(support=problem), None)[: 1 if learner == "Algorithm 1" else 2]:
        run = learn(
            problem,
            LEARNERS[learner],
            episodes=ENOUGH[learner],
            seed=1,
            assumptions=known,
            history="none",
            average=False,
        )
        found = evaluate(problem, run.policy)
        assert found.violation_probability == 0.0
        assert found.value == pytest.approx(best.value, rel=1e-9)
        assert (run.violations == 0) == (known is not None)


@pytest.mark.parametrize("learner", [*LEARNERS][::2])
def test_declared_constraints_forbid_what_violates_at_once(learner):
    problem = feasible_problem(3, stationary=True)
    model = compile_model(problem)

    def constraint(step, state, action):
        return min(min(o.constraints) for o in problem.outcomes(step, state, action))

    run = learn(model, LEARNERS[learner], episodes=300, assumptions=Assumptions(constraints=constraint))
    without = learn(model, LEARNERS[learner], episodes=300)
    assert run.violations < without.violations
    for step, state in naive.decision_points(problem):
        actions = list(problem.actions(step, state))
        if any(constraint(step, state, action) >= 0 for action in actions):
            assert constraint(step, state, run.policy.action(step, state)) >= 0


def test_a_support_and_the_constraints_can_be_declared_together():
    problem = feasible_problem(3, stationary=True)

    def constraint(step, state, action):
        return min(min(o.constraints) for o in problem.outcomes(step, state, action))

    known = Assumptions(support=problem, constraints=constraint, safe_policy=solve(problem).policy)
    for settings in LEARNERS.values():
        assert learn(problem, settings, episodes=100, assumptions=known).violations == 0


def test_the_tables_say_from_the_first_episode_on_what_is_not_safe():
    problem = feasible_problem(0, stationary=True)
    safe = safe_set(problem)
    run = learn(problem, LEARNERS["practical"], episodes=1, assumptions=Assumptions(support=problem))
    assert (run.q[~safe.entries] == -np.inf).all()
    assert (run.q[safe.entries] > -np.inf).all()
    assert np.array_equal(run._learned.known() != 0, ~safe.entries)


@pytest.mark.parametrize("learner", [*LEARNERS, "OptCMDP", "OptPrimalDual"])
def test_an_environment_is_learned_without_one_violation(learner):
    env = gymnasium.make("peakrl/EnergyHarvesting-v0", horizon=5, battery=4, max_arrival=3, mean=2, std=1, peak_power=3)
    options = {"states": 20} if "bernstein" in learner or learner in LENIENT else {}
    settings = (LEARNERS | LENIENT)[learner]
    support = peakrl.problems.energy_harvesting(horizon=5, battery=4, max_arrival=3, mean=1, std=2, peak_power=3)
    without = learn(env, settings, episodes=100, assumptions=Assumptions(**options))
    run = learn(env, settings, episodes=100, assumptions=Assumptions(support=support, **options))
    assert without.violations > 0
    assert run.violations == 0
    declared = learn(
        env,
        settings,
        episodes=100,
        assumptions=Assumptions(constraints=lambda h, s, a: 3.0 - a, **options),
    )
    assert declared.violations == 0


class Daring(peakrl.Learner):
    """Takes the last action on offer, and remembers what it was offered."""

    def begin(self, task):
        self.offered = set()

    def act(self, step, state, actions):
        self.offered |= {(step, state, action) for action in actions}
        return actions[-1]


@pytest.mark.parametrize("on_environment", [False, True])
def test_a_learner_of_ones_own_is_offered_what_is_safe_and_nothing_else(on_environment):
    support = numbered(CorridorProblem())
    learner, known = Daring(), Assumptions(support=support)
    if on_environment:
        run = learn(ConstrainedEnv(Corridor(), constraint=pit, **DECLARED), learner, episodes=30, assumptions=known)
        assert learn(ConstrainedEnv(Corridor(), constraint=pit, **DECLARED), Daring(), episodes=30).violations > 0
    else:
        run = learn(support, learner, episodes=30, assumptions=known)
        assert learn(support, Daring(), episodes=30).violations > 0
    assert run.violations == 0
    safe = safe_set(support)
    assert all(safe.mask(state, step)[action] for step, state, action in learner.offered)


def numbered(problem):
    """The corridor as its environment has it: actions 0, 1, 2."""

    class Numbered(type(problem)):
        def actions(self, step, state):
            return range(3)

        def outcomes(self, step, state, action):
            return super().outcomes(step, state, ["left", "stay", "right"][action])

    return Numbered()


DECLARED = {"horizon": Corridor.horizon, "reward_range": (0, 5)}


def pit(transition):
    return -1.0 if transition.info["fell"] else 1.0


@pytest.mark.parametrize("learner", ["practical", "Algorithm 1"])
def test_a_users_environment_is_learned_without_one_violation_and_a_resumed_run_goes_on_so(learner, tmp_path):
    known = Assumptions(support=numbered(CorridorProblem()), stationary=True if learner == "practical" else None)
    run = learn(
        ConstrainedEnv(Corridor(), constraint=pit, **DECLARED), LEARNERS[learner], episodes=60, assumptions=known
    )
    assert run.violations == 0
    assert run.averaged_policy.num_changes > 0
    for step in range(Corridor.horizon):
        for state, action in run.policy.table(step).items():
            assert safe_set(known.support).mask(state, step)[action]


class Icy(Corridor):
    """Slips to the left too, which nobody has declared."""

    def step(self, action):
        if int(action) == 1 and self.time == 3:
            action = 0
        return super().step(action)


def test_an_outcome_outside_of_the_support_ends_the_run_with_the_observation():
    known = Assumptions(support=numbered(CorridorProblem()))
    with pytest.raises(TargetError, match=r"action \d in state \d led to \d, which is outside of the declared support"):
        learn(ConstrainedEnv(Icy(), constraint=pit, **DECLARED), LEARNERS["practical"], episodes=500, assumptions=known)
    with pytest.raises(TargetError, match="violated by 1, but by the declared support it is safe"):
        learn(
            ConstrainedEnv(Corridor(), constraint=lambda t: -1.0, **DECLARED),
            LEARNERS["practical"],
            episodes=50,
            assumptions=known,
        )


def test_a_first_state_outside_of_the_support_is_an_error():
    class Elsewhere(Corridor):
        observation_space = gymnasium.spaces.Discrete(10)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place = 8
            return self.place, {}

    known = Assumptions(support=numbered(CorridorProblem()))
    with pytest.raises(TargetError, match="the first state 8 is outside of the declared support"):
        learn(
            ConstrainedEnv(Elsewhere(), constraint=pit, **DECLARED),
            LEARNERS["practical"],
            episodes=5,
            assumptions=known,
        )


def test_declared_constraints_that_an_environment_contradicts_are_an_error():
    known = Assumptions(constraints=lambda step, state, action: 1.0)
    with pytest.raises(TargetError, match=r"violated by 1, which is not what the declared constraints say"):
        learn(
            ConstrainedEnv(Corridor(), constraint=pit, **DECLARED),
            LEARNERS["practical"],
            episodes=500,
            assumptions=known,
        )


def test_a_false_declaration_is_an_error_on_a_model():
    problem = feasible_problem(0, stationary=True)
    lacking = {key: outcomes[:1] if len(outcomes) > 1 else outcomes for key, outcomes in problem.tables.items()}
    lacking = {key: [o._replace(probability=1.0) for o in outcomes] for key, outcomes in lacking.items()}
    narrow = RandomProblem(**{**vars(problem), "tables": lacking})
    with pytest.raises(
        SettingsError, match=r"at step \d .*(outside of the declared support|by the declared support it is safe)"
    ):
        learn(problem, LEARNERS["practical"], episodes=5, assumptions=Assumptions(support=narrow))
    with pytest.raises(SettingsError, match="constraints is not the constraint of the model: in state"):
        learn(problem, LEARNERS["practical"], episodes=5, assumptions=Assumptions(constraints=lambda h, s, a: 1.0))
    with pytest.raises(SettingsError, match=r"constraints\(step, state, action\) returned None for step 0"):
        learn(problem, LEARNERS["practical"], episodes=5, assumptions=Assumptions(constraints=lambda h, s, a: None))
    with pytest.raises(SettingsError, match="is neither a Problem nor a TabularModel"):
        learn(problem, LEARNERS["practical"], episodes=5, assumptions=Assumptions(support="mine"))
    stuck = peakrl.problems.scheduling_example(3)
    with pytest.raises(SettingsError, match=r"no policy is safe from the first state .* by the declared support"):
        learn(stuck, LEARNERS["practical"], episodes=5, assumptions=Assumptions(support=stuck))


class Seesaw(peakrl.Problem):
    """Goes to and fro between 0 and 1; if it begins in 1, labels of states are not their indices."""

    name, horizon, stationary, constraint_names = "seesaw", 3, True, ("left",)

    def __init__(self, first=1):
        self.first = first

    def initial(self):
        return [(1.0, self.first)]

    def actions(self, step, state):
        return (0, 1)

    def outcomes(self, step, state, sold):
        yield peakrl.Outcome(1.0, 1 - state, reward=float(sold), constraints=(state - sold,))


@pytest.mark.parametrize("lanes", ["single", "declared", "vector"])
def test_labels_are_not_taken_for_the_indices_that_the_environment_of_a_problem_shows(lanes):
    env = peakrl.to_gymnasium(Seesaw())
    if lanes == "vector":
        env = gymnasium.vector.SyncVectorEnv([lambda: peakrl.to_gymnasium(Seesaw())] * 2)
    elif lanes == "declared":
        env = ConstrainedEnv(env, reward_range=(0, 1))
    for known in (Assumptions(support=Seesaw()), Assumptions(safe_policy=solve(Seesaw()).policy)):
        with pytest.raises(SettingsError, match=r"shows their indices.*learn on the problem itself"):
            learn(env, episodes=10, assumptions=known)
    seen = learn(env, episodes=10, assumptions=Assumptions(constraints=lambda h, s, a: 1 - s - a)).policy
    assert learn(env, episodes=10, assumptions=Assumptions(safe_policy=seen)).violations == 0


def test_a_support_whose_labels_are_the_indices_is_used_on_the_environment_of_a_problem():
    problem = Seesaw(first=0)
    run = learn(peakrl.to_gymnasium(problem), episodes=20, assumptions=Assumptions(support=problem))
    assert run.violations == 0
    assert run.policy.action(1, 1) == 1
