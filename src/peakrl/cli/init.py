"""`peakrl init`: a commented problem file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from peakrl.errors import SettingsError, StorageError


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the file, with or without .toml.")],
    kind: Annotated[str, typer.Option(help="What: energy, jobs, tables, python, gymnasium, ...")] = "energy",
) -> None:
    """Write a commented problem file (and the files it needs) that trains as it stands."""
    from peakrl.cli.templates import template_files, templates
    from peakrl.storage import writable, write_file

    if kind not in templates():
        raise SettingsError(f"--kind is {kind!r}; it must be one of {', '.join(templates())}")
    base = Path(name.removesuffix(".toml"))
    if not base.name.isidentifier():
        raise SettingsError(f"{base.name!r} is no good name: use letters, digits and _, and begin with a letter")
    files = {base.with_name(base.name + suffix): text for suffix, text in template_files(kind, base.name).items()}
    for path in files:
        if writable(path).exists():
            raise StorageError(f"{path} exists already; remove it or choose another name")
    for path, text in files.items():
        write_file(path, text.encode())
        print(f"wrote {path}")
    trust = " --trust" if base.with_suffix(".py") in files else ""
    print(f"next: peakrl train {base}.toml{trust} --out {base}.run")
