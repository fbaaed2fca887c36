"""Files of safe sets of continuous problems: read, proved again, refused, and compiled."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import peakrl
from helpers import continuous_systems as systems
from peakrl import PeakError, safe_set
from peakrl.continuous.files import claim_of
from peakrl.continuous.witnesses import first_unproved
from peakrl.viability import FOREVER


def unproved(safe, problem, seed=0):
    """The first cell whose random safe choice is not proved by other code."""
    draws = np.random.default_rng(seed).random(safe.kept.shape)
    choice = np.argmax(np.where(safe.kept == safe.kept.max(axis=1, keepdims=True), draws, -1), axis=1)
    steps = safe.kept[np.arange(len(choice)), choice].astype(int)
    return first_unproved(
        problem, claim_of(safe.grid, safe.horizon, safe.layer, np.where(steps > 0, choice, -1), steps)
    )


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_other_code_proves_the_choices_of_every_system(name):
    make, cells = systems.SYSTEMS[name]
    problem = make()
    assert unproved(safe_set(problem, cells=cells), problem) is None


def test_other_code_proves_random_problems_with_horizons_and_measured_states():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        problem, cells = systems.random_problem(rng)
        safe = safe_set(problem, cells=cells, horizon=3 if seed % 2 else np.inf, measured=0.01 * (seed % 3 == 0))
        assert unproved(safe, problem, seed) is None


@pytest.mark.parametrize(
    ("kind", "make", "cells"),
    [("centre", systems.pendulum, 60), ("corners", systems.logistic, 16), ("no disturbance", systems.two_rooms, 60)],
)
def test_other_code_refutes_sets_of_images_that_are_too_small(kind, make, cells):
    assert unproved(safe_set(systems.sabotaged(make, kind), cells=cells), make()) is not None


def test_other_code_does_not_prove_steps_of_several_turns():
    fast = peakrl.ContinuousProblem(lambda x, a, w: [x[0] + 30.0], box={"x": (0, 1)}, actions=[0], outside="wrap")
    safe = safe_set(fast, cells=5)
    assert safe.share == 0
    claim = claim_of(safe.grid, None, np.full(5, FOREVER), np.zeros(5, int), None)
    assert first_unproved(fast, claim) == 0


@pytest.mark.parametrize("options", [{}, {"horizon": 7}, {"measured": 1e-4}])
def test_a_saved_set_is_loaded_for_its_problem(options, tmp_path):
    problem = systems.turning()
    safe = safe_set(problem, cells=(90, 40), **options)
    assert safe.share > 0
    safe.save(tmp_path / "set")
    loaded = peakrl.load(tmp_path / "set", problem)
    np.testing.assert_array_equal(loaded.kept, safe.kept)
    np.testing.assert_array_equal(loaded.layer, safe.layer)
    assert (loaded.horizon, loaded.measured, loaded.share) == (safe.horizon, safe.measured, safe.share)


def test_a_set_is_refused_for_other_dynamics_and_for_another_box(tmp_path):
    safe_set(systems.pendulum(noise=0.1), cells=60).save(tmp_path / "set")
    with pytest.raises(PeakError, match="noise_low, noise_high differ"):
        peakrl.load(tmp_path / "set", systems.pendulum(noise=0.2))
    with pytest.raises(PeakError, match="pass the problem"):
        peakrl.load(tmp_path / "set")
    wrong = systems.sabotaged(systems.pendulum, "centre")
    safe_set(wrong, cells=60).save(tmp_path / "wrong")
    with pytest.raises(PeakError, match=r"its choice near angle .* is not proved"):
        peakrl.load(tmp_path / "wrong", systems.pendulum())


def test_a_file_cannot_shrink_cells_by_a_negative_error(tmp_path):
    wrong = safe_set(systems.sabotaged(systems.logistic, "centre"), cells=40)
    wrong.measured = -0.499 * float(np.diff(wrong.grid.edges[0])[0])
    wrong.save(tmp_path / "set")
    with pytest.raises(PeakError, match="measured is -0"):
        peakrl.load(tmp_path / "set", systems.logistic())


def test_csv_lists_the_safe_cells_and_their_choices():
    safe = safe_set(systems.room(), cells=20)
    lines = safe.to_csv().splitlines()
    assert lines[0] == "temperature low,temperature high,0,1"
    assert len(lines) == 1 + safe.cells.sum()
    assert lines[1] == "18.0,18.3,0,1"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("horizon", [np.inf, 4])
def test_the_header_agrees_with_the_masks_on_edges_and_after_turns(horizon, tmp_path):
    safe, rng = safe_set(systems.turning(), cells=(90, 40), horizon=horizon, measured=1e-4), np.random.default_rng(0)
    safe.to_c(tmp_path / "turning.h")
    source = '#include "turning.h"\nint safe(int32_t s, const double *x, int32_t a) { return turning_safe(s, x, a); }\n'
    (tmp_path / "all.c").write_text(source)
    library = tmp_path / "all.so"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", library, tmp_path / "all.c"], check=True)
    compiled = ctypes.CDLL(str(library)).safe
    compiled.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32]
    points = np.concatenate([systems.points_of(safe, 300, rng), rng.uniform(-4, 4, (200, 2)) * [1, 0.3], [[np.nan, 0]]])
    points[:50, 0] += 2 * np.pi * rng.integers(-20, 20, 50)
    for step in (0, 2):
        found = [[compiled(step, point.ctypes.data, a) for a in range(3)] for point in points]
        np.testing.assert_array_equal(found, safe.mask(points, step))
