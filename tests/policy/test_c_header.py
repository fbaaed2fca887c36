"""A policy as C: compiled where there is a compiler, asked about every state, and compared with the policy itself."""

import shutil
import subprocess

import numpy as np
import pytest

from helpers.random_problems import random_problem
from peakrl import Outcome, Problem, safe_set, solve
from peakrl.errors import PolicyError
from peakrl.problems import energy_harvesting, scheduling_example

COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler to compare with")
PROGRAMME = """
#include <stdio.h>
#include "controller.h"
int main(void)
{
    int step, action;
    int PARTS;
    while (scanf(FORMAT, &step, POINTERS) == COUNT) {
        printf("%d", (int)controller_action(step, PARTS));
        for (action = -1; action <= CONTROLLER_ACTIONS; action++) printf(" %d", controller_safe(step, PARTS, action));
        printf("\\n");
    }
    return 0;
}
"""


def compiled_answers(folder, parts, questions):
    """What the header's functions say: a line of numbers for each (step, part, part, ...)."""
    names = [f"p{part}" for part in range(parts)]
    form = '"' + " ".join(["%d"] * (parts + 1)) + '"'
    pointers = ", ".join(f"&{name}" for name in names)
    text = PROGRAMME.replace("FORMAT", form).replace("POINTERS", pointers).replace("COUNT", str(parts + 1))
    (folder / "main.c").write_text(text.replace("PARTS", ", ".join(names)))
    flags = ["-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([COMPILER, *flags, "main.c", "-o", "main"], cwd=folder, check=True, capture_output=True)
    lines = "\n".join(" ".join(map(str, question)) for question in questions)
    told = subprocess.run([folder / "main"], input=lines, capture_output=True, text=True, check=True)
    return [list(map(int, line.split())) for line in told.stdout.splitlines()]


def compare_everything(folder, policy, safe, key_of):
    """Every (step, state): decision and mask; states that there are not at a step have neither."""
    model = policy.model
    labels = list(model.state_labels)
    keys = [key_of(number, label) for number, label in enumerate(labels)]
    questions = [(step, *key) for step in range(model.horizon) for key in keys]
    strangers = [
        (0, *(-9 for _ in keys[0])),
        (0, *(10_000 for _ in keys[0])),
        (-1, *keys[0]),
        (model.horizon, *keys[0]),
    ]
    answers = compiled_answers(folder, len(keys[0]), questions + strangers)
    assert all(answer == [-1] + [0] * (len(answer) - 1) for answer in answers[len(questions) :])
    numbers = {label: number for number, label in enumerate(model.action_labels)}
    known = 0
    for (step, state), answer in zip(((h, s) for h in range(model.horizon) for s in labels), answers, strict=False):
        try:
            slot = model.slot_of(step, state)
        except PolicyError:
            assert answer == [-1] + [0] * (len(answer) - 1)
            continue
        assert answer[1:] == [0, *safe.mask(state, step).astype(int).tolist(), 0]
        if model.reachable[step * model.layout.node_stride + slot]:
            assert answer[0] == numbers[policy.action(step, state)]
            known += 1
        else:
            assert answer[0] == -1
    assert known


def as_parts(number, label):
    return label if isinstance(label, tuple) else (label,)


def by_number(number, label):
    return (number,)


@needs_compiler
def test_the_papers_transmitter_decides_in_c_as_in_python_and_takes_less_than_32_kilobytes(tmp_path):
    best = solve(energy_harvesting())
    text = best.policy.to_c(tmp_path / "controller.h", safe_set=best.safe_set)
    assert len(text) < 32_000
    compare_everything(tmp_path, best.policy, best.safe_set, as_parts)
    (tmp_path / "tables.c").write_text(
        '#include "controller.h"\nint32_t (*a)(int32_t, int32_t, int32_t) = controller_action;\n'
        "int (*b)(int32_t, int32_t, int32_t, int32_t) = controller_safe;\n"
    )
    subprocess.run([COMPILER, "-std=c99", "-Os", "-c", "tables.c"], cwd=tmp_path, check=True)
    assert (tmp_path / "tables.o").stat().st_size < 32_000


@needs_compiler
@pytest.mark.parametrize("used", ["action", "safe", None])
def test_a_programme_need_not_use_every_function(tmp_path, used):
    best = solve(energy_harvesting(horizon=3, battery=3, max_arrival=3, mean=2, std=1, peak_power=1))
    best.policy.to_c(tmp_path / "controller.h", safe_set=best.safe_set)
    call = {"action": "controller_action(0, 1, 1)", "safe": "controller_safe(0, 1, 1, 0)", None: "0"}[used]
    (tmp_path / "main.c").write_text(f'#include "controller.h"\nint main(void) {{ return (int){call}; }}\n')
    flags = ["-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-Wno-unused-const-variable"]
    subprocess.run([COMPILER, *flags, "-c", "main.c"], cwd=tmp_path, check=True, capture_output=True)


@needs_compiler
def test_random_problems_decide_in_c_as_in_python(tmp_path):
    for seed in range(4):
        problem = random_problem(seed, states=5, actions=3, horizon=4, stationary=seed % 2 == 0)
        best = solve(problem)
        best.policy.to_c(tmp_path / "controller.h", safe_set=best.safe_set)
        compare_everything(tmp_path, best.policy, best.safe_set, as_parts)


@needs_compiler
def test_states_that_are_no_whole_numbers_go_by_their_number(tmp_path):
    best = solve(scheduling_example(1))
    text = best.policy.to_c(tmp_path / "controller.h", safe_set=best.safe_set)
    assert "States by index:" in text
    compare_everything(tmp_path, best.policy, best.safe_set, by_number)


@needs_compiler
@pytest.mark.parametrize("labels", [(5, 2**31), (0, -(2**63)), ((1, 2**40), (1, 7)), ((), ())])
def test_states_whose_numbers_c_cannot_hold_go_by_their_number(tmp_path, labels):
    class Wide(Problem):
        horizon, stationary, constraint_names = 2, True, ("limit",)

        def initial(self):
            return [(1.0, labels[0])]

        def actions(self, step, state):
            return [0, 1]

        def outcomes(self, step, state, action):
            return [Outcome(1.0, labels[action], float(action), (1.0,))]

    best = solve(Wide())
    text = best.policy.to_c(tmp_path / "controller.h", safe_set=best.safe_set)
    assert "States by index:" in text
    compare_everything(tmp_path, best.policy, best.safe_set, by_number)


def test_without_a_safe_set_there_is_no_word_of_safety(tmp_path):
    problem = random_problem(1)
    text = solve(problem).policy.to_c(tmp_path / "my policy-2.h")
    assert (tmp_path / "my policy-2.h").read_text() == text
    assert "my_policy_2_action(" in text
    assert "_safe(" not in text


def test_labels_cannot_break_out_of_the_comment(tmp_path):
    class Sly(type(random_problem(1))):
        pass

    problem = random_problem(1, states=1, actions=1)
    sly = Sly(**{**vars(problem), "name": "x */ int stolen; /* ??/ ü"})
    text = solve(sly).policy.to_c(tmp_path / "a.h")
    assert text.count("*/ int stolen") == 0
    assert text.isascii()


@needs_compiler
@pytest.mark.parametrize("end", ["*\\\n/", "*\\ \n/", "*\\\r\n/"])
def test_a_line_that_c_joins_to_the_next_does_not_end_the_comment_either(tmp_path, end):
    problem = random_problem(1, states=1, actions=1)
    sly = type(problem)(**{**vars(problem), "name": f"x {end} int stolen; /*"})
    solve(sly).policy.to_c(tmp_path / "a.h")
    told = subprocess.run([COMPILER, "-E", "-P", "a.h"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "stolen" not in told.stdout


def test_a_safe_set_of_another_problem_and_a_name_that_c_does_not_take_are_refused(tmp_path):
    policy = solve(random_problem(1)).policy
    with pytest.raises(PolicyError, match="the safe set belongs to"):
        policy.to_c(tmp_path / "a.h", safe_set=safe_set(random_problem(2)))
    with pytest.raises(PolicyError, match="name is '2fast'; it must be an identifier of C"):
        policy.to_c(tmp_path / "a.h", name="2fast")
    assert not (tmp_path / "a.h").exists()


def test_every_number_of_a_table_fits_the_integers_it_is_declared_with():
    from peakrl.policy.c_header import array

    for values in ([0, 255], [-1, 127], [-1, 128], [0, 65_535], [-40_000, 3], [0, 70_000]):
        text = array("t", values)
        kind = np.dtype(text.split("static const ")[1].split("_t ")[0])
        assert np.array(values).astype(kind).tolist() == values
        smaller = [
            np.dtype(each) for each in ("uint8", "int8", "uint16", "int16") if np.dtype(each).itemsize < kind.itemsize
        ]
        assert all(np.array(values).astype(each).tolist() != values for each in smaller)
