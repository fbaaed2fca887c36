"""One self-contained HTML page of what was run, what came out and how far it is from the optimum.

    a folder of runs   every run file in it
    a sweep's folder   what each learner reached, how surely, and the curves
    a run file         the run: exact figures, curves, verdict with proof, audit, policy maps, explorer

Everything is inlined (style, script, plotly once, data), and a content security policy keeps the page from reaching
for anything else. Data is embedded as JSON whose `<`, `>` and `&` are escaped, so that no label can end the script.
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
#: What pages begin with; those before 0.2 do not say who made them.
OURS = (
    b'<meta name="generator" content="peakrl">',
    b"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'",
)
TEMPLATES = Path(__file__).parent / "templates"
#: What ends a script, or begins something else in it, is written so that HTML does not see it.
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class Page:
    """A page before it is written."""

    title: str
    source: str
    sections: Sequence[Section]
    #: The version of a page that is served while a run goes on; it reloads itself when there is a newer one.
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
        """What the page's scripts draw, by block."""
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
            raise StorageError(
                f"{place} holds something other than a page of peakrl's: move it, or put the page elsewhere"
            )
        # Half a sign of Unicode stands for a byte in the name of a file that is no text.
        write_file(place, self.html().encode(errors="backslashreplace"))
        return place


@cache
def environment() -> Any:
    """Return the template engine, escaping everything that is not marked as ours."""
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
    """Return JSON that stands safely inside a script element."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for sign, escape in ESCAPES.items():
        text = text.replace(sign, escape)
    return text


def make_page(source: str | Path, model: TabularModel | None = None, table: TabularModel | None = None) -> Page:
    """Return the page of a folder of runs, a sweep's folder or a run file.

    Of a run file: `model` where it does not hold it, `table` that an environment shows.
    """
    path = Path(source)
    if os.path.isdir(path):  # which says no, and raises nothing, of a name that cannot be
        if model is not None or table is not None:
            raise SettingsError(f"{path} is a folder; a problem can be named for a single run file only")
        sections = folder_sections(path)
        if not sections:
            raise StorageError(f"{path} holds nothing to report: {what_else(path)}")
        return Page(f"Report on {path.resolve().name}", path.name, sections)
    if not os.path.exists(path):
        raise StorageError(f"{path} does not exist; name a folder of runs, a sweep's folder or a run file")
    from peakrl.report.sections import run_section

    return Page(f"Report on {path.name}", path.name, [run_section(path, model=model, table=table)])


def what_else(folder: Path) -> str:
    """Return which folders within may be meant, or what would fill this one."""
    within = sorted({found.parent for kind in ("json", "run") for found in folder.glob(f"*/*.{kind}")})
    if within:
        return "name a folder within it, such as " + " or ".join(map(str, within[:3]))
    return "`peakrl train ... --out` writes a run there, `peakrl sweep` a folder of runs"


def folder_sections(folder: Path) -> list[Section]:
    """Return the sections of everything that a folder holds."""
    from peakrl.sweeps.store import MARKER

    if (folder / MARKER).exists():
        from peakrl.report.sections import sweep_sections

        return sweep_sections(folder)
    from peakrl.report.sections import run_section

    runs = sorted(folder.glob("*.run"))
    return [run_section(path, share=len(runs)) for path in runs]


def default_place(source: str | Path) -> Path:
    """Return where the page of something goes unless told otherwise: into a folder, beside a file."""
    path = Path(source)
    return path / NAME if path.is_dir() else path.with_suffix(".html")


def write_page(
    source: str | Path,
    out: str | Path | None = None,
    model: TabularModel | None = None,
    table: TabularModel | None = None,
) -> tuple[Path, Page]:
    """Write the page of a folder or a run file; return where it is, and the page."""
    page = make_page(source, model, table)
    place = default_place(source) if out is None else Path(out)
    if out is None and place.is_symlink():  # it came with what is reported on, and may lead to any file of the reader's
        raise StorageError(f"{place} is a link to {os.readlink(place)}: remove it, or say where the page goes (--out)")
    return page.write(place), page


def write_report(
    source: LearningRun | str | Path, out: str | Path | None = None, *, table: TabularModel | None = None
) -> Path:
    """Write one self-contained HTML page and return where it is: what was run, what came out, how far from the optimum.

    `source` is a run, or names a run file, a folder of runs or a sweep's folder. The page goes to `out`,
    a file or a folder. Unless that is given it goes into the folder, beside the run file, or, for a run that is in no
    file, to `report.html` in the current folder. A page of peakrl's that stood there is replaced. A run on an
    environment is judged exactly on its `table`, where that is given: `compile_model(from_gymnasium(env, ...))`.
    """
    from peakrl.training.trainer import LearningRun

    if not isinstance(source, LearningRun | str | Path):
        raise SettingsError(f"source is {source!r}; it must be a run, or the name of a run file or a folder")
    if not isinstance(out, str | Path | None):
        raise SettingsError(f"out is {out!r}; it must be the name of a file or a folder")
    if isinstance(source, LearningRun):
        from peakrl.report.sections import section_for

        page = Page(f"Report on {source.model.name}", source.model.name, [section_for(source, "run", table=table)])
        return page.write(Path(NAME if out is None else out))
    return write_page(source, out, table=table)[0]


def replaceable(place: Path) -> bool:
    """Is a file empty, or a page of ours?"""
    with reading(place) as file:
        begin = file.read(1000)
    return not begin or any(mark in begin for mark in OURS)
