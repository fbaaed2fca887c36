"""Settings of the documentation: Sphinx with MyST. Nothing here or in the built pages needs the network."""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any

import peakrl

project = "peakrl"
author = "The peakrl authors"
project_copyright = author
version = release = peakrl.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]

# Formulas are plain text: a script that sets them would have to come from the network.
myst_enable_extensions = ["deflist", "fieldlist"]
myst_heading_anchors = 3

# Notebooks are stored without outputs and run at every build, so that what a page shows is what the code does.
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"  # where the build also compiles kernels, they say so there
# Kernels leave their connection files and history here instead of in the reader's home.
for variable in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
    os.environ.setdefault(variable, tempfile.mkdtemp(prefix="peakrl-docs-"))

# The reference says what the source says: fields in the order of the source, aliases by their names.
autodoc_member_order = "bysource"
autodoc_default_options = {"undoc-members": True}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    name: name
    for name in ("AnyPolicy", "ArrayLike", "Bonus", "Dependence", "Floats", "Ints", "Longs", "Record", "Start")
}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 110
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "peakrl"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["peakrl.css"]

# `make docs` runs this builder for links to files; links between pages are checked by the build itself (-W).
linkcheck_ignore = [r"https?://.*"]


def as_rst(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written as one writes Markdown: `code` in single backticks, |x| for an absolute value."""
    for number, line in enumerate(lines):
        code = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line)
        lines[number] = re.sub(r"\|(?=\S)", r"\\|", code) if "``" not in code else code


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_rst)
