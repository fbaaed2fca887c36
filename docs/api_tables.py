"""Write the tables of docs/api.md: a line for each name, so that the page can be read without building it.

    python docs/api_tables.py

A table stands before each block of directives and says of every name what the first sentence of its docstring says.
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


def told(module: str, name: str) -> str:
    """Return the line of a name: how it is called, and what it is."""
    found = getattr(importlib.import_module(module), name)
    text = (inspect.getdoc(found) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    sentence = re.split(r"(?<=[.?]) (?=[A-Z`])|: (?=\n)", text)[0]
    called = f"{name}(...)" if inspect.isfunction(found) else name
    return f"| `{called}` | {sentence} |"


def tables(text: str) -> str:
    """Return the page with its tables as they should be."""
    module = "peakrl"

    def with_table(match: re.Match[str]) -> str:
        nonlocal module
        lines = []
        for directive, name in DIRECTIVE.findall(match[1]):
            if directive == "currentmodule":
                module = name
            else:
                lines.append(told(module, name))
        head = "| name | what it is |\n|---|---|\n" + "\n".join(lines) + "\n\n" if lines else ""
        return f"{head}```{{eval-rst}}\n{match[1]}```\n"

    return BLOCK.sub(with_table, text)


if __name__ == "__main__":
    PAGE.write_text(tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
