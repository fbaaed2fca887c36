"""The tables of figure 2 in the documentation hold what a full run gives."""

from pathlib import Path

import pytest

from experiments import run_experiment
from experiments.records import Request

PAGE = Path(__file__).parents[2] / "docs" / "reproducing-the-paper.md"


def rows(heading):
    """The rows of the table below a heading, as lists of cells."""
    table = PAGE.read_text().split(heading, 1)[1].split("|---", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]


@pytest.mark.slow
def test_the_tables_of_figure_2_hold_what_a_full_run_gives(tmp_path):
    ours = {check.what: check.ours for check in run_experiment("figure-2", Request(tmp_path, workers=2)).checks}
    episodes = ("5,000", "10,000", "20,000")
    frozen = [(measure, episode) for measure in ("sum rate, bits", "violation") for episode in episodes]
    for slack, *cells in rows("| slack |"):
        for (measure, episode), cell in zip(frozen, cells, strict=True):
            found = ours[f"{measure}, slack {slack}, episode {episode}"]
            assert cell.split(", ")[1] == f"{found:.2f}", (slack, measure, episode)
    random = (
        "sum rate of the averaged policy, bits",
        "sum rate of the last policy, bits",
        "violation of the averaged policy",
    )
    for learner, *cells in rows("| learner |"):
        name = learner.removesuffix(", c1 = c2 = 0.001").removeprefix("Algorithm 1, ")
        for measure, cell in zip(random, cells, strict=True):
            found = ours[f"{measure}, random arrivals, {name}, episode 50,000"]
            assert cell == f"{found:.{len(cell.split('.')[1])}f}", (learner, measure)
