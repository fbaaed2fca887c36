"""A quick start: nothing heavy is imported before it is needed, and kernels are kept compiled as long as they hold.

Seconds are for `python -m benchmarks start`; here it is what they depend on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "peakrl"
HEAVY = (
    "numpy", "numba", "scipy", "pandas", "pydantic", "gymnasium", "joblib", "safetensors",
    "matplotlib", "plotly", "jinja2", "cvxpy", "ray",
)  # fmt: skip
HELP = "sys.argv = ['peakrl', '--help']\ntry:\n    import peakrl.cli; peakrl.cli.main()\nexcept SystemExit: pass"


def python(code, **environment):
    """Run code in a new process and return the last line it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("start", ["import peakrl", HELP], ids=["import", "help"])
def test_starting_imports_nothing_heavy(start):
    assert python(f"import sys\n{start}\nprint([name for name in {HEAVY} if name in sys.modules])") == "[]"


def test_learning_imports_only_what_it_computes_with():
    code = "import sys, peakrl\npeakrl.learn, peakrl.compile_model, peakrl.TabularModel\n"
    spared = [name for name in HEAVY if name not in ("numpy", "numba", "pydantic", "safetensors")]
    # numba asks for scipy's version where it is installed, no more.
    spared = ["scipy.optimize", "scipy.stats", *(name for name in spared if name != "scipy")]
    assert python(f"{code}print([name for name in {spared} if name in sys.modules])") == "[]"


FILES = {
    "evaluation/amounts.py": "AMOUNT = 1\n",
    "evaluation/inner.py": (
        "from peakrl.evaluation.amounts import AMOUNT\nfrom peakrl.jit import kernel\n\n"
        "@kernel\ndef inner(x):\n    return x + AMOUNT\n"
    ),
    "planning/outer.py": (
        "from peakrl.evaluation.inner import inner\nfrom peakrl.jit import kernel\n\n"
        "@kernel\ndef outer(x):\n    return 2 * inner(x)\n"
    ),
}
ASK = "from peakrl.planning.outer import outer\nprint(outer(1), sum(outer.stats.cache_hits.values()))"


def test_a_kernel_is_read_from_the_cache_until_a_file_that_it_uses_is_edited(tmp_path):
    copy = tmp_path / "peakrl"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, source in FILES.items():
        (copy / name).write_text(source)
    places = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert python(ASK, **places) == "4 0"
    assert python(ASK, **places) == "4 1"  # from the cache
    (copy / "evaluation" / "amounts.py").write_text("AMOUNT = 10\n")
    assert python(ASK, **places) == "22 0"
    (copy / "evaluation" / "inner.py").write_text(FILES["evaluation/inner.py"].replace("x + ", "x - "))
    assert python(ASK, **places) == "-18 0"
