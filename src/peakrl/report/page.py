"""`write_report`: one self-contained HTML page of a run, a folder of runs or a sweep.

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
from typing import TYPE_CHECKING, Any

from peakrl.errors import SettingsError, StorageError
from peakrl.report.blocks import Section, exactly, is_number, shown
from peakrl.storage import reading, write_file

if TYPE_CHECKING:
    from peakrl.tabular import TabularModel
    from peakrl.training.trainer import LearningRun

NAME = "report.html"
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
    #: Version of a live page, which reloads itself when there is a newer one.
    live: int | None = None

    def html(self) -> str:
        """Return the whole page."""
        from plotly.offline import get_plotlyjs

        import peakrl

        return str(
            environment()
            .get_template("page.html")
            .render(
                page=self,
                connect="'none'" if self.live is None else "'self'",
                version=peakrl.__version__,
                style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
                plotly=get_plotlyjs().replace("</script", "<\\/script"),
                scripts=[(TEMPLATES / name).read_text(encoding="utf-8") for name in ("charts.js", "policy.js")],
                data=embedded(self.data),
            )
        )

    @property
    def data(self) -> dict[str, Any]:
        """The data of the charts, by id of the block."""
        return {key: value for part in self.sections for key, value in part.data.items()}

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


def make_page(source: str | Path, model: TabularModel | None = None, table: TabularModel | None = None) -> Page:
    """Return the page of a folder of runs, a sweep's folder or a run file.

    For a run file: `model` if the file does not contain it, `table` of a run on an environment.
    """
    path = Path(source)
    if os.path.isdir(path):  # unlike Path.is_dir, False for invalid names
        if model is not None or table is not None:
            raise SettingsError(f"{path} is a folder; --problem needs a single run file")
        sections = folder_sections(path)
        if not sections:
            raise StorageError(f"{path} contains no runs: {what_else(path)}")
        return Page(f"Report on {path.resolve().name}", path.name, sections)
    if not os.path.exists(path):
        raise StorageError(f"{path} does not exist; name a folder of runs, a sweep's folder or a run file")
    from peakrl.report.sections import run_section

    return Page(f"Report on {path.name}", path.name, [run_section(path, model=model, table=table)])


def what_else(folder: Path) -> str:
    """Return a remedy for a folder without runs."""
    within = sorted({found.parent for kind in ("json", "run") for found in folder.glob(f"*/*.{kind}")})
    if within:
        return "name one of its subfolders, such as " + " or ".join(map(str, within[:3]))
    return "`peakrl train ... --out` writes a run, `peakrl sweep` a folder of runs"


def folder_sections(folder: Path) -> list[Section]:
    """Return the sections of a folder of runs or of a sweep."""
    from peakrl.sweeps.store import MARKER

    if (folder / MARKER).exists():
        from peakrl.report.sections import sweep_sections

        return sweep_sections(folder)
    from peakrl.report.sections import run_section

    runs = sorted(folder.glob("*.run"))
    return [run_section(path, share=len(runs)) for path in runs]


def default_place(source: str | Path) -> Path:
    """Return the default file of the page: inside of a folder, next to a run file."""
    path = Path(source)
    return path / NAME if path.is_dir() else path.with_suffix(".html")


def write_page(
    source: str | Path,
    out: str | Path | None = None,
    model: TabularModel | None = None,
    table: TabularModel | None = None,
) -> tuple[Path, Page]:
    """Write the page of a folder or a run file; return its path and the page."""
    page = make_page(source, model, table)
    place = default_place(source) if out is None else Path(out)
    if out is None and place.is_symlink():  # it may come from somebody else and lead to any file
        raise StorageError(f"{place} is a link to {os.readlink(place)}: remove it, or choose another file (--out)")
    return page.write(place), page


def write_report(
    source: LearningRun | str | Path, out: str | Path | None = None, *, table: TabularModel | None = None
) -> Path:
    """Write one self-contained HTML page: settings, results, learning curves and the gap to the optimum.

    Parameters
    ----------
    source:
        A run, or the path of a run file, a folder of runs or a sweep folder.
    out:
        File or folder of the page. Default: inside of the folder, next to the run file, or `report.html` in the current
        folder for a run. An existing page of peakrl is replaced; any other file is an error.
    table:
        Transition table of the environment of a run, for exact results:
        `compile_model(from_gymnasium(env, ...))`.

    Returns
    -------
    Path
        The file of the page.
    """
    from peakrl.training.trainer import LearningRun

    if not isinstance(source, LearningRun | str | Path):
        raise SettingsError(f"source is {source!r}; it must be a run, or the path of a run file or a folder")
    if not isinstance(out, str | Path | None):
        raise SettingsError(f"out is {out!r}; it must be the path of a file or a folder")
    if isinstance(source, LearningRun):
        from peakrl.report.sections import section_for

        page = Page(f"Report on {source.model.name}", source.model.name, [section_for(source, "run", table=table)])
        return page.write(Path(NAME if out is None else out))
    return write_page(source, out, table=table)[0]


def replaceable(place: Path) -> bool:
    """Is a file empty, or a page of peakrl?"""
    with reading(place) as file:
        begin = file.read(1000)
    return not begin or any(mark in begin for mark in OURS)
