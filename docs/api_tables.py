"""Update the tables of docs/api.md: a row for each name at the top level, so that the page is readable without a build.

    python docs/api_tables.py

The table before a block of directives contains the first sentence of the docstring of every name at the top level.
"""

import importlib
import inspect
import re
from pathlib import Path

PAGE = Path(__file__).parent / "api.md"
BLOCK = re.compile(
    r"(?:\| name \| what it is \|\n(?:\|[^\n]*\n)+\n)?^```\{eval-rst\}\n(.*?)^```\n", re.MULTILINE | re.DOTALL
)
DIRECTIVE = re.compile(r"^\.\. (auto\w+|currentmodule):: ([\w.]+)", re.MULTILINE)


def row(module: str, name: str) -> str:
    """Return the row of a name: its call and its summary."""
    found = getattr(importlib.import_module(module), name)
    text = (inspect.getdoc(found) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    sentence = re.split(r"(?<=[.?]) (?=[A-Z`])|: (?=\n)", text)[0]
    called = f"{name}(...)" if inspect.isfunction(found) else name
    return f"| `{called}` | {sentence} |"


def tables(text: str) -> str:
    """Return the page with updated tables."""
    module = "peakrl"

    def with_table(match: re.Match[str]) -> str:
        nonlocal module
        lines = []
        for directive, name in DIRECTIVE.findall(match[1]):
            if directive == "currentmodule":
                module = name
            elif module == "peakrl":
                lines.append(row(module, name))
        head = "| name | what it is |\n|---|---|\n" + "\n".join(lines) + "\n\n" if lines else ""
        return f"{head}```{{eval-rst}}\n{match[1]}```\n"

    return BLOCK.sub(with_table, text)


if __name__ == "__main__":
    PAGE.write_text(tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
