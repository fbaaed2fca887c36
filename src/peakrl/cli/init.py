"""`peakrl init`: a commented problem file to start from, with the parameters of a kind and their defaults."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peakrl.cli.command import Answer, descriptions
from peakrl.cli.output import say
from peakrl.errors import SettingsError, StorageError
from peakrl.specs.registry import Kind, kinds

#: Columns of a comment.
WIDTH = 100
#: Files that stand beside a problem file are named by the template and their suffix.
TEMPLATES = Path(__file__).parent / "templates"
#: The template of an environment, which is not a kind of problem.
GYMNASIUM = "gymnasium"


def init(name: str, *, kind: str = "energy_harvesting") -> Answer:
    """Write a commented problem file that is ready to train.

    Parameters
    ----------
    name : NAME
        Name of the new file, with or without .toml.
    kind
        Kind of problem: energy_harvesting, machine_scheduling, tables, python, gymnasium, ...
    """
    from peakrl.storage import writable, write_file

    kind = kind.replace("-", "_")
    if kind not in templates():
        raise SettingsError(f"--kind is {kind!r}; it must be one of {', '.join(templates())}")
    base = Path(name.removesuffix(".toml"))
    if not base.name.isidentifier():
        raise SettingsError(f"{base.name!r} is not a valid name: use letters, digits and _, and begin with a letter")
    files = {base.with_name(base.name + suffix): text for suffix, text in template_files(kind, base.name).items()}
    for path in files:
        if writable(path).exists():
            raise StorageError(f"{path} already exists: remove it or choose another name")
    for path, text in files.items():
        write_file(path, text.encode())
    trust = " --trust" if base.with_suffix(".py") in files else ""
    following = f"peakrl train {base}.toml{trust} --out {base}.run"
    lines = [*(f"wrote {path}" for path in files), f"next: {following}"]
    return Answer({"files": list(files), "next": following}, lambda: say("\n".join(lines)))


def templates() -> list[str]:
    """Return the names of the templates."""
    return [kind.name for kind in kinds().values() if kind.template] + [GYMNASIUM]


def template_files(which: str, name: str) -> dict[str, str]:
    """Return the files of a template as {suffix: text}."""
    others = ", ".join(kind.name for kind in kinds().values() if kind.template and kind.name != which)
    if which == GYMNASIUM:
        head, episodes = read("gymnasium.toml").replace("{others}", others), 500
    else:
        kind = kinds()[which]
        head, episodes = problem_table(kind, f"{others}, {GYMNASIUM}"), kind.episodes
    text = (head + "\n" + read("learning.toml")).replace("{name}", name).replace("{episodes}", f"{episodes:_}")
    more = (path.name for path in TEMPLATES.glob(f"{which}.*") if path.suffix != ".toml")
    return {".toml": text} | {file.removeprefix(which).removesuffix(".txt"): read(file) for file in more}


def read(name: str) -> str:
    """Return a file of the folder `templates`."""
    return (TEMPLATES / name).read_text("utf-8")


def comment(text: str) -> list[str]:
    """Return the lines of a comment."""
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH)]


def problem_table(kind: Kind, others: str) -> str:
    """Return the table of a problem: each parameter with its description and its default or example."""
    title = (inspect.getdoc(kind.function) or "").partition("\n")[0].removeprefix("Return ").rstrip(".")
    trust = " --trust" if kind.runs_code else ""
    lines = [
        f"# {title[:1].upper()}{title[1:]}.",
        f"# Train it:  peakrl train {{name}}.toml{trust} --out {{name}}.run",
        "",
        "[problem]",
        *comment(f"Other kinds: {others}."),
        f'kind = "{kind.name}"',
    ]
    comments = descriptions(kind.function)
    for name, parameter in kind.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        lines += comment(comments[name][1].replace("`", "").replace("None:", "inf:") if name in comments else "")
        value = kind.example.get(name, parameter.default)
        lines.append(f"# {name} = ..." if value is None else f"{name} = {as_toml(value)}")
    return "\n".join(lines) + "\n"


def as_toml(value: Any) -> str:
    """Return a value in TOML; a list of lists, tables or texts has one item in a line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {as_toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        items = [as_toml(item) for item in value]
        long = any(isinstance(item, str | list | tuple | Mapping) for item in value)
        return "[\n    " + ",\n    ".join(items) + ",\n]" if long else f"[{', '.join(items)}]"
    return json.dumps(value)
