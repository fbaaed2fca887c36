"""Output of commands: tables and JSON.

Text from files may contain control characters (escape sequences, text direction); they are printed as escapes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any


def print_json(value: Any) -> None:
    """Print strict JSON; numpy values become plain, NaN and infinities become null."""
    print(json.dumps(plain(value), indent=2, allow_nan=False))


def say(text: Any, *, error: bool = False) -> None:
    """Print to stdout, or to stderr if it is an error."""
    print(printable(str(text)), file=sys.stderr if error else sys.stdout)


def printable(text: str) -> str:
    """Return a text with control characters escaped."""
    return "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)


def plain(value: Any) -> Any:
    """Return `value` made of dicts, lists, strings, numbers and None only."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table with right-aligned numbers."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float | None) for row in rows) if rows else False
        table.add_column(Text(column), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(printable(shown(cell))) for cell in row))  # Text: brackets are not markup
    # A file or a pipe has no width.
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200)
    if title:
        console.print(Text(printable(title), style="bold"), soft_wrap=True)
    console.print(table)


def shown(cell: Any) -> str:
    """Return a cell's text."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:,.6g}"
    if isinstance(cell, int):
        return f"{cell:,}"
    return "" if cell is None else str(cell)
