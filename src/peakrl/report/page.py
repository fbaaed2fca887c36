"""`write_report`: one self-contained HTML page of a run, a folder of runs or a sweep.

    solution          value, safety, and a map of the policy and the safe set
    safe set          of continuous states: a map of its cells with slices
    run file          exact metrics, learning curves, certificates, audit, policy map and explorer
    folder of runs    the same for every run file in it
    sweep folder      results of each learner with intervals, and learning curves

Style, scripts, plotly and data are inlined, and a content security policy forbids network access. Data is embedded as
JSON with escaped `<`, `>` and `&`, so that no label can end the script.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from peakrl.continuous import GridSafeSet
from peakrl.errors import SettingsError, StorageError
from peakrl.planning import Solution
from peakrl.records import kind_of
from peakrl.report.blocks import Section, exactly, is_number, shown
from peakrl.storage import reading, write_file
from peakrl.tabular import TabularModel
from peakrl.training.run import LearningRun
from peakrl.version import __version__

NAME = "report.html"
#: What a page is about.
Source = GridSafeSet | LearningRun | Solution[Any] | str | Path
#: Marks of a page that peakrl wrote.
OURS = (
    b'<meta name="generator" content="peakrl">',
    b"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'",
)
TEMPLATES = Path(__file__).parent / "templates"
#: Characters that HTML would interpret inside of a script.
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class Page:
    """A page before it is written."""

    title: str
    source: str
    sections: Sequence[Section]

    def html(self) -> str:
        """Return the whole page."""
        from plotly.offline import get_plotlyjs

        style, *scripts = [(TEMPLATES / name).read_text("utf-8") for name in ("page.css", "charts.js", "policy.js")]
        data = {key: value for section in self.sections for key, value in section.data.items()}
        template = environment().get_template("page.html")
        return str(
            template.render(
                page=self,
                version=__version__,
                style=style,
                plotly=get_plotlyjs().replace("</script", "<\\/script"),
                scripts=scripts,
                data=embedded(data),
            )
        )

    def write(self, place: Path) -> Path:
        """Write the page to a file, or to `report.html` in a folder, and return the file.

        An existing file is replaced only if it is a page of peakrl.
        """
        if os.path.isdir(place):
            place = place / NAME
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or error
            raise StorageError(f"cannot make the folder {place.parent}: {said}") from error
        if os.path.isfile(place) and not replaceable(place):
            raise StorageError(f"{place} exists and is not a page of peakrl: move it, or choose another file")
        # File names that are not valid Unicode contain lone surrogates.
        write_file(place, self.html().encode(errors="backslashreplace"))
        return place


@cache
def environment() -> Any:
    """Return the template engine, with autoescaping."""
    import jinja2

    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.filters |= {"shown": shown, "exactly": exactly}
    engine.tests |= {"numeric": is_number}
    return engine


def embedded(data: Any) -> str:
    """Return JSON that is safe inside of a script element."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for sign, escape in ESCAPES.items():
        text = text.replace(sign, escape)
    return text


def make_page(source: Source, model: TabularModel | None = None, table: TabularModel | None = None) -> Page:
    """Return the page of a solution, a safe set, a run, a run file, a folder of runs or a sweep's folder.

    For a run file: `model` if the file does not contain it. For a run on an environment: its `table`.
    """
    from peakrl.report.endless import endless_section
    from peakrl.report.safe_sets import safe_set_section
    from peakrl.report.sections import section_for
    from peakrl.report.solutions import horizon_section
    from peakrl.training.learn import load_run
    from peakrl.training.run_file import ENVIRONMENT_RUN, RUN

    if isinstance(source, Solution):
        section = endless_section(source) if source.model.steps is None else horizon_section(source)
        return Page(f"Report on {source.model.name}", source.model.name, [section])
    if isinstance(source, GridSafeSet):
        return Page(f"Safe set of {source.problem.name}", source.problem.name, [safe_set_section(source)])
    if isinstance(source, LearningRun):
        return Page(f"Report on {source.model.name}", source.model.name, [section_for(source, "run", table=table)])
    path = Path(source)
    if not os.path.exists(path):  # unlike Path.exists, False for invalid names
        raise StorageError(f"{path} does not exist; name a folder of runs, a sweep's folder or a run file")
    if not os.path.isdir(path):
        if kind_of(path) not in (None, RUN.name, ENVIRONMENT_RUN.name):
            raise StorageError(
                f"{path} holds no run: `peakrl train FILE --out RUN` makes one. In Python write_report also draws "
                "what solve returns, and the safe set of a continuous problem"
            )
        run = load_run(path, model)
        return Page(f"Report on {path.name}", path.name, [section_for(run, path.name, table=table)])
    if model is not None or table is not None:
        raise SettingsError(f"{path} is a folder; --problem needs a single run file")
    from peakrl.sweeps.store import MARKER

    if (path / MARKER).exists():
        from peakrl.report.sweeps import sweep_sections

        sections = sweep_sections(path)
    else:
        runs = sorted(path.glob("*.run"))
        sections = [section_for(load_run(run), run.name, len(runs)) for run in runs]
    if not sections:
        raise StorageError(f"{path} contains no runs: {what_else(path)}")
    return Page(f"Report on {path.resolve().name}", path.name, sections)


def what_else(folder: Path) -> str:
    """Return a remedy for a folder without runs."""
    within = sorted({found.parent for kind in ("json", "run") for found in folder.glob(f"*/*.{kind}")})
    if within:
        return "name one of its subfolders, such as " + " or ".join(map(str, within[:3]))
    return "`peakrl train ... --out` writes a run, `peakrl sweep` a folder of runs"


def default_place(source: Source) -> Path:
    """Return the default file of the page: inside of a folder, next to a run file."""
    if not isinstance(source, str | Path):
        return Path(NAME)
    path = Path(source)
    return path / NAME if path.is_dir() else path.with_suffix(".html")


def write_page(
    source: Source,
    out: str | Path | None = None,
    model: TabularModel | None = None,
    table: TabularModel | None = None,
) -> tuple[Path, Page]:
    """Write the page of a run, a run file or a folder; return its path and the page."""
    page = make_page(source, model, table)
    place = default_place(source) if out is None else Path(out)
    if out is None and place.is_symlink():  # it may come from somebody else and lead to any file
        raise StorageError(f"{place} is a link to {os.readlink(place)}: remove it, or choose another file (--out)")
    return page.write(place), page


def write_report(source: Source, out: str | Path | None = None, *, table: TabularModel | None = None) -> Path:
    """Write one self-contained HTML page: settings, results, learning curves and the gap to the optimum.

    Parameters
    ----------
    source:
        A run, or the path of a run file, a folder of runs or a sweep folder; a solution of `solve` or `solve_cmdp`; or
        the safe set of a continuous problem.
    out:
        File or folder of the page. Default: inside of the folder, next to the run file, or else `report.html` in the
        current folder. An existing page of peakrl is replaced; any other file is an error.
    table:
        Transition table of the environment of a run, for exact results:
        `compile_model(from_gymnasium(env, ...))`.

    Returns
    -------
    Path
        The file of the page.

    Examples
    --------
    >>> import peakrl
    >>> run = peakrl.learn(peakrl.problems.scheduling_example(1), episodes=500)
    >>> peakrl.write_report(run, "report.html").name
    'report.html'
    """
    if not isinstance(source, GridSafeSet | LearningRun | Solution | str | Path):
        raise SettingsError(
            f"source is {source!r}; it must be a run, a solution, the safe set of a continuous problem, or the path "
            "of a run file or a folder"
        )
    if not isinstance(out, str | Path | None):
        raise SettingsError(f"out is {out!r}; it must be the path of a file or a folder")
    return write_page(source, out, table=table)[0]


def replaceable(place: Path) -> bool:
    """Is a file empty, or a page of peakrl?"""
    with reading(place) as file:
        begin = file.read(1000)
    return not begin or any(mark in begin for mark in OURS)
