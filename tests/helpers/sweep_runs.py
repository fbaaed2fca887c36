"""Runs for the tests of sweeps; workers import them by name."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def note(config: dict[str, Any], what: str) -> None:
    """Append a line to the log that the configuration names."""
    with open(config["log"], "a") as file:
        file.write(f"{what} {config.get('x', '')}\n")


def square(config: dict[str, Any]) -> dict[str, Any]:
    if "log" in config:
        note(config, "run")
    time.sleep(config.get("seconds", 0.0))
    x = config["x"]
    return {"square": x * x, "root": np.sqrt(x), "powers": np.arange(x) ** 2}


def threads(config: dict[str, Any]) -> dict[str, Any]:
    import numba

    return {"numba": numba.config.NUMBA_NUM_THREADS, "blas": os.environ["OPENBLAS_NUM_THREADS"], "process": os.getpid()}


def die(config: dict[str, Any]) -> dict[str, Any]:
    """Kill the own process, the first `times` times."""
    note(config, "die")
    if Path(config["log"]).read_text().count("die") <= config["times"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"survived": True}


def fail(config: dict[str, Any]) -> dict[str, Any]:
    note(config, "fail")
    raise {"value": ValueError, "disk": OSError}[config["error"]]("no such luck")


def talk(config: dict[str, Any]) -> dict[str, Any]:
    """Write to standard output and read standard input."""
    print("[]", flush=True)
    return {"heard": sys.stdin.read()}


def odd_result(config: dict[str, Any]) -> dict[str, Any]:
    return {"list": [1, 2]}
