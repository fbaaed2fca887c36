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


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The Python of a new environment, in which there is pip and nothing else."""
    venv.create(tmp_path / "empty", with_pip=True)
    return tmp_path / "empty" / "bin" / "python"


def pip(python: Path, *words: str | Path) -> bool:
    return subprocess.run([python, "-m", "pip", *words, "-q"], capture_output=True).returncode == 0


def site_of(python: Path) -> Path:
    told = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True)
    return Path(told.strip())


def check_example(python: Path, folder: Path) -> None:
    """The README's example prints what it says, and peakrl is the one of this environment."""
    text = (ROOT / "README.md").read_text()
    code, told = re.search(r"^```python\n(.*?)^```\s+```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL).groups()  # type: ignore[union-attr]
    where = "import peakrl, sys; print(peakrl.__file__, file=sys.stderr)\n"
    ran = subprocess.run([python, "-I", "-c", where + code], cwd=folder, check=True, capture_output=True, text=True)
    assert str(site_of(python)) in ran.stderr
    assert ran.stdout == told


def test_the_example_of_the_readme_runs_from_the_wheel_with_what_is_installed_here(
    built: Path, empty: Path, tmp_path: Path
) -> None:
    assert pip(empty, "install", "--no-deps", "--no-index", only(built, "*.whl"))
    # What it depends on comes from here, without asking anybody; peakrl itself is found in the new environment first.
    (site_of(empty) / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    check_example(empty, tmp_path)


def test_the_wheel_brings_along_all_that_the_example_of_the_readme_and_its_command_need(
    built: Path, empty: Path, tmp_path: Path
) -> None:
    if not pip(empty, "download", "--no-deps", "-d", tmp_path / "probe", "typing_extensions"):
        pytest.skip("no package index can be reached: the wheel's dependencies cannot be installed")
    assert pip(empty, "install", only(built, "*.whl"))
    check_example(empty, tmp_path)
    command = [empty.with_name("peakrl"), "train", "scheduling-1", "--episodes", "50", "--out", "jobs.run"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([empty.with_name("peakrl"), "report", "jobs.run"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "jobs.html").stat().st_size > 1_000_000
