"""A problem as data: what it says is what is built, swept, stored and shown; what is wrong in it is named."""

from __future__ import annotations

from peakrl import Outcome, Problem, compile_model, learn, load_run


class Told(Problem):
    """A problem that says what it is."""

    horizon = 1
    spec = {"kind": "told", "numbers": [1, 2]}  # noqa: RUF012  # read only

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return [0]

    def outcomes(self, step, state, action):
        return [Outcome(1.0, 0, 1.0)]


def test_a_model_and_the_file_of_its_run_keep_what_the_problem_says_it_is(tmp_path):
    model = compile_model(Told())
    assert model.spec == Told.spec
    learn(model, episodes=3).save(tmp_path / "a.run")
    assert load_run(tmp_path / "a.run").model.spec == Told.spec


def test_what_a_problem_says_it_is_does_not_change_its_digest():
    silent = compile_model(type("Silent", (Told,), {"spec": None})())
    assert silent.spec is None
    assert silent.digest == compile_model(Told()).digest
