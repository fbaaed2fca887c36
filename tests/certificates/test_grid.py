"""Certificates of policies on continuous problems, and files that lie."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import continuous_systems as systems
from peakrl import PeakError, certify, problems, solve, verify
from peakrl.certificates.certificate import CERTIFICATE
from peakrl.records import Record


@pytest.fixture
def made(tmp_path):
    """A certificate and its file."""
    problem = problems.room_temperature()
    certificate = certify(problem, solve(problem, cells=60, discount=0.9).policy)
    certificate.save(tmp_path / "room")
    return certificate, tmp_path / "room"


def test_a_policy_is_proved_never_to_violate_and_its_file_is_checked_with_the_problem(made):
    certificate, path = made
    assert certificate.holds
    assert certificate.kind == "grid"
    assert certificate.violation_high == 0.0
    assert "proved on a grid" in str(certificate)
    checked = verify(path, problems.room_temperature())
    assert checked.holds
    assert any("disturbance stays" in line for line in checked.rests_on)
    with pytest.raises(PeakError, match="pass the problem"):
        verify(path)


def test_a_stronger_disturbance_or_other_dynamics_refute_it(made):
    _, path = made
    assert "noise_high differ" in verify(path, problems.room_temperature(warmest=12.0)).reason
    assert "is not proved to be safe" in verify(path, problems.room_temperature(heater=1.0)).reason


def test_a_policy_on_the_cells_of_another_box_is_not_certified():
    policy = solve(problems.room_temperature(), cells=60, discount=0.9).policy
    certificate = certify(problems.room_temperature(low=17.0, high=25.0), policy)
    assert not certificate.holds
    assert "low, high differ" in certificate.reason


def test_a_file_with_one_unsafe_choice_or_other_numbers_is_refuted(made):
    _, path = made
    record = CERTIFICATE.read(path)
    choice = record.arrays["choice"].copy()
    choice[0] = 0  # does not heat where it is coldest
    plain = {key: value for key, value in record.plain.items() if key not in ("kind", "schema", "peakrl")}
    CERTIFICATE.write(path, Record(plain, {"choice": choice}))
    assert "near temperature 18.05 is not proved" in verify(path, problems.room_temperature()).reason
    plain["certificate"]["value_low"] = 5.0
    CERTIFICATE.write(path, Record(plain, record.arrays))
    assert "numbers that do not follow" in verify(path, problems.room_temperature()).reason


def test_a_truth_value_is_not_read_as_a_constraint():
    """An action that is forbidden by False would be proved to be safe."""
    with pytest.raises(PeakError, match=r"constraints must be numbers, .*False would count as 0"):
        systems.pendulum(constraints=lambda x, a: [a == 0])


def test_a_start_outside_of_the_safe_set_is_refuted():
    problem = systems.pendulum(start={"angle": (-0.5, 0.1), "speed": (-2.5, 0)}, reward=lambda x, a: -np.abs(x[0]))
    certificate = certify(problem, solve(problem, cells=60, discount=0.9).policy)
    assert not certificate.holds
    assert certificate.violation_high is None
    assert "no choice in a cell that touches the start" in certificate.reason
