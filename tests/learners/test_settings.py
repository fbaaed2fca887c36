"""How settings show themselves; what they do is tested where they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peakrl import learners
from peakrl.errors import SettingsError
from peakrl.learners import Certified, ConstrainedQ, SafeQ, learner_from
from peakrl.learners.base import LearnerSettings

positive = st.floats(1e-6, 1e6)
FIELDS: dict[type[LearnerSettings], dict[str, st.SearchStrategy[Any]]] = {
    learners.ConstrainedQ: {
        "slack": st.just(0.0) | positive,
        "slater": st.none() | positive,
        "penalty": st.none() | st.just(0.0) | positive,
        "exponent": st.none() | st.floats(0.01, 0.49),
        "unit_rewards": st.booleans(),
        "bonus": st.sampled_from(["bernstein", "hoeffding", "none"]),
        "start": st.sampled_from(["flat", "stepwise", "tight"]),
        "c1": positive,
        "c2": positive,
        "failure_probability": st.floats(0.01, 0.99),
    },
    learners.SafeQ: {
        "penalty": st.none() | st.just(0.0) | positive,
        "trials": st.booleans(),
    },
}
BEGINNINGS = [
    SafeQ(),
    ConstrainedQ.paper(0.1),
    ConstrainedQ.published(0.1),
    ConstrainedQ.deterministic(0.2),
]


@st.composite
def chosen(draw: st.DrawFn) -> LearnerSettings:
    """A preset with some fields changed."""
    begun = draw(st.sampled_from(BEGINNINGS))
    fields = FIELDS[type(begun)]
    changes = draw(st.dictionaries(st.sampled_from(list(fields)), st.none(), max_size=3))
    try:
        return type(begun)(**begun.model_dump() | {name: draw(fields[name]) for name in changes})
    except SettingsError:
        assume(False)
        raise


def test_every_field_is_tried() -> None:
    for kind, fields in FIELDS.items():
        assert set(fields) == set(kind.model_fields)


@given(chosen())
def test_settings_come_back_from_plain_values(settings: LearnerSettings) -> None:
    assert learner_from(settings.as_dict()) == settings == learner_from(settings.brief())


@given(chosen())
def test_settings_show_themselves_as_the_call_that_makes_them_so_no_two_look_alike(settings: LearnerSettings) -> None:
    shown = repr(settings)
    assert "\n" not in shown
    assert str(settings) == shown
    assert eval(shown, {name: getattr(learners, name) for name in learners.LEARNERS}) == settings


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        (SafeQ(), "SafeQ()"),
        (SafeQ(trials=False, penalty=0.5), "SafeQ(trials=False, penalty=0.5)"),
        (ConstrainedQ.paper(0.1, bonus="hoeffding"), "ConstrainedQ(slack=0.1, bonus='hoeffding', start='flat')"),
        (ConstrainedQ.published(1), "ConstrainedQ(slack=1.0, unit_rewards=True)"),
        (Certified([0.1, 0.5]), "Certified(epsilon=(0.5, 0.1))"),
    ],
)
def test_settings_name_what_differs_from_the_defaults(settings: LearnerSettings, shown: str) -> None:
    assert repr(settings) == shown


def test_class_methods_set_what_the_paper_does() -> None:
    assert ConstrainedQ.paper(0.1) == ConstrainedQ(slack=0.1, bonus="bernstein", start="flat")
    assert ConstrainedQ.published(0.1) == ConstrainedQ(slack=0.1, unit_rewards=True, bonus="none", start="stepwise")
    expected = ConstrainedQ(slack=0.0, exponent=0.2, bonus="bernstein", start="flat", c1=0.5)
    assert ConstrainedQ.deterministic(0.2, c1=0.5) == expected


def test_every_whole_number_has_a_bound_that_fits_into_64_bits() -> None:
    for name in learners.LEARNERS:
        for field, how in learners.find_learner(name).model_fields.items():
            if how.annotation is int:
                assert any(getattr(rule, "le", 2**63) < 2**63 for rule in how.metadata), (name, field)


@pytest.mark.parametrize("epsilon", [0.1, (0.1,), [0.1], np.array([0.1])])
def test_epsilon_is_a_number_or_a_sequence_by_position_or_by_name(epsilon: Any) -> None:
    assert Certified(epsilon, 0.05, False) == Certified(epsilon=epsilon) == Certified(0.1)
