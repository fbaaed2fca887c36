"""What is handed out: wheel and sdist build and hold the same, and the README's example runs from the wheel alone."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow
pytest.importorskip("hatchling", reason="hatchling is not installed (pip install hatchling): nothing is built")


def build(folder: Path, out: Path, *targets: str) -> None:
    wanted = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", *wanted, "-d", str(out)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, out, "wheel", "sdist")
    return out


def contents(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("RECORD")}


def test_a_wheel_built_from_the_sdist_holds_what_the_wheel_does(built: Path, tmp_path: Path) -> None:
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    build(only(tmp_path, "peakrl-*"), tmp_path / "again", "wheel")
    names = contents(only(built, "*.whl"))
    assert contents(only(tmp_path / "again", "*.whl")) == names
    own = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/peakrl").rglob("*") if path.is_file()}
    assert {name for name in own if "__pycache__" not in name} <= names


def test_the_example_of_the_readme_runs_from_the_wheel_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    wheel = only(built, "*.whl")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    # What it depends on comes from here, without asking anybody; peakrl itself is found in the new environment first.
    site = Path(
        subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
    )
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    text = (ROOT / "README.md").read_text()
    code, told = re.search(r"^```python\n(.*?)^```\s+```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL).groups()  # type: ignore[union-attr]
    where = "import peakrl, sys; print(peakrl.__file__, file=sys.stderr)\n"
    ran = subprocess.run([python, "-I", "-c", where + code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert str(site) in ran.stderr
    assert ran.stdout == told
