"""Every learner that templates, help texts and documents name trains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.commands import TINY, caller
from peakrl import Assumptions, PeakError, learn, learners, solve
from peakrl.cli import COMMANDS, app
from peakrl.cli.init import template_files, templates
from peakrl.training.spec_file import learner_settings, read_problem_file

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(page for kind in ("md", "ipynb", "py") for page in (ROOT / "docs").rglob(f"*.{kind}"))]
#: In a file or a mapping; in Python, with a class method or without; by name in Python; presets in files.
MENTIONS = [
    re.compile(r"""\blearner[\\"]{0,2} ?[=:] ?\\?["'](?P<name>\w+)\\?["']"""),
    re.compile(r"(?<!/)\blearners\.(?P<name>[A-Z]\w*)(?:\.(?P<preset>[a-z]\w*))?"),
    re.compile(r"\blearn(?:_many)?\([\w.]+, [\"'](?P<name>\w+)[\"']"),
    re.compile(r"(?P<name>)\bpreset = \W(?P<preset>\w+)"),
]
#: What a learner cannot do without, on the tiny problem.
LIMIT = {"total": 1.0}
NEEDED = {
    "certified": {"epsilon": 0.5},
    **{key: {"slack": 0.5} for key in ("constrainedq", "constrainedq.paper", "constrainedq.published")},
    "constrainedq.deterministic": {"phi": 0.2},
    **dict.fromkeys(("tripleq", "optcmdp", "dope", "optpesslp", "optdual", "optprimaldual", "weimdp"), LIMIT),
    "optcmdp.certainty_equivalent": LIMIT,
    "optprimaldual.opdop": {**LIMIT, "episodes": 5, "slater": 0.5},
    "optprimaldual.npg_pd": {**LIMIT, "episodes": 5},
    "optprimaldual.regularised": LIMIT,
}


def mentioned(*texts: str) -> dict[str, tuple[str, str | None]]:
    """Return {key: (name, preset or None)} of the learners that texts name; presets of files are ConstrainedQ's."""
    found = [match.groupdict() for text in texts for form in MENTIONS for match in form.finditer(text)]
    pairs = [(one["name"] or "ConstrainedQ", one.get("preset")) for one in found]
    return {".".join(filter(None, pair)).lower(): pair for pair in sorted(pairs, key=str)}


IN_TEMPLATES = mentioned(*(template_files(kind, "mine")[".toml"].partition("[settings]")[2] for kind in templates()))
HELP = [CliRunner().invoke(app, [name, "--help"]).output for commands in COMMANDS.values() for name in commands]
FOUND = mentioned(*HELP, *(page.read_text() for page in PAGES)) | IN_TEMPLATES
FOUND |= {name.lower(): (name, None) for name in learners.LEARNERS}


def test_the_templates_offer_the_main_learners():
    assert {"posteriorsampling", "safeq", "certified", "constrainedq.paper"} <= IN_TEMPLATES.keys()


@pytest.mark.parametrize("key", sorted(FOUND))
def test_a_learner_that_is_named_somewhere_trains(key, tmp_path):
    name, preset = FOUND[key]
    (tmp_path / "tiny.toml").write_text(TINY)
    model = read_problem_file(tmp_path / "tiny.toml").model()
    if key == "pessimistic":
        with pytest.raises(PeakError, match="learns from logs"):
            learn(model, name, episodes=5)
        return
    needed = dict(NEEDED.get(key, {})) | ({} if preset is None else {"preset": preset})
    if key in ("dope", "optpesslp"):
        needed["safe_policy"] = solve(model).policy
    assumptions = Assumptions(support=model) if key == "maskedq" else None
    for spelled in (name, name.lower()):
        settings = learner_settings({"learner": spelled, **needed}, "settings", tmp_path)
        assert learn(model, settings, episodes=5, assumptions=assumptions).settings == settings


@pytest.mark.parametrize("key", IN_TEMPLATES)
def test_what_a_template_offers_is_trained_by_the_command(key, monkeypatch, capsys, tmp_path):
    command = caller(monkeypatch, capsys, tmp_path)
    name, preset = IN_TEMPLATES[key]
    values = {"learner": name, "preset": preset, **NEEDED.get(key, {})}
    lines = [f"{name} = {value!r}" for name, value in values.items() if value is not None]
    (tmp_path / "one.toml").write_text("\n".join([TINY, "[settings]", *lines]))
    code, _, err = command("train", "one.toml", "--episodes", "5")
    assert code == 0, err
