"""PRISM models, built by Storm through the extra `storm` and read as UMB files."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peakrl.errors import ProblemError, StorageError
from peakrl.formats.umb import read_umb
from peakrl.storage import reading
from peakrl.tabular import TabularModel


def read_prism(path: str | Path, constants: Mapping[str, Any] | None = None, **options: Any) -> TabularModel:
    """Return the model of a PRISM file, built by Storm; needs the extra `storm`.

    Parameters
    ----------
    path
        A file in the PRISM language.
    constants
        Values of the constants that the file leaves open.
    options
        `never`, `reward`, `horizon` and `cost`, as in `read_umb`.

    Returns
    -------
    TabularModel
        Its states and actions are named as by `read_umb`.

    Examples
    --------
    >>> import peakrl
    >>> peakrl.read_prism("machine.prism", {"N": 3}, never="hot", horizon=10)  # doctest: +SKIP
    """
    try:
        stormpy = importlib.import_module("stormpy")
    except ImportError as error:
        raise ProblemError(f"{path}: PRISM models are built by stormpy; pip install '.[storm]' ({error})") from error
    with reading(path):
        pass  # Storm's own message for a missing file names no file
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / f"{Path(path).stem}.umb"
        try:
            program = stormpy.parse_prism_program(path)
            if constants:
                program, _ = stormpy.instantiate_constants(program, dict(constants))
            full = stormpy.BuilderOptions(build_full=True)
            stormpy.io.export_to_umb(stormpy.build_model(program, options=full), built)
        except Exception as error:  # Storm raises errors of many types
            raise StorageError(f"cannot read {path}: Storm reports {error}") from error
        return read_umb(built, **options)
