"""Sunlight as the source of arrivals: the hourly radiation of a station, fitted on some months, evaluated on others.

A station file (TMY3; the package pvlib contains two) holds for each hour of a typical year the global radiation in
Wh/m^2, with a flag that says whether it was measured or modelled. An arrival is that radiation in whole units:

    e = min(max_arrival, round(radiation / unit))

A day is the sequence of arrivals from hour `hours[0]` to hour `hours[1]`. For n days, with N_h(e, e') the number of
days on which e' followed e at step h, s the smoothing and u uniform over 0 .. max_arrival, the fitted distributions are

    m_h(e)      = (N_h(e) + s u(e)) / (n + s)                        of the arrival of step h
    T_h(e, e')  = (N_h(e, e') + s m_{h+1}(e')) / (N_h(e) + s)        of the next arrival, given this one

Every arrival is possible at every step, so that a policy for the fitted model has an action on any other day. The peak
constraint depends only on the power and thus holds there as well.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from peakrl.checks import check_count, check_hours, check_number, check_numbers
from peakrl.errors import ProblemError, StorageError
from peakrl.policy.tables import Policy
from peakrl.problems.harvesting.arrivals import HourlyArrivals, as_sequences
from peakrl.problems.harvesting.energy import EnergyHarvesting, energy_harvesting
from peakrl.specs.csv_table import read_lines
from peakrl.specs.registry import problem
from peakrl.specs.spec import remember
from peakrl.types import Floats, Longs

MONTHS = tuple(range(1, 13))
DATE, TIME, RADIATION = "Date (MM/DD/YYYY)", "Time (HH:MM)", "GHI (W/m^2)"
#: Bytes; the file of a typical year has less than two million.
LARGEST_FILE = 20_000_000


@dataclass(frozen=True, eq=False)
class Station:
    """The hours of a station by day."""

    name: str
    #: [day]: 1 .. 12.
    months: Longs
    #: [day, hour of the day]: Wh/m^2.
    radiation: Floats


def station_file(station: Any, folder: str | Path = ".") -> Path:
    """Return the file of a station: a path, or the name of a file in the installed pvlib."""
    if not isinstance(station, str | Path) or not str(station):
        raise ProblemError(f"station is {station!r}; it must be the name of a TMY3 file")
    path = Path(folder) / station
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):
        pass  # not a valid name of a file
    found = importlib.util.find_spec("pvlib")
    places = [] if found is None else [Path(place) / "data" for place in found.submodule_search_locations or ()]
    shipped = {file.name: file for place in places for file in sorted(place.glob("*TY*.[cC][sS][vV]"))}
    if str(station) in shipped:
        return shipped[str(station)]
    listed = f"pvlib has {', '.join(shipped)}" if shipped else "pip install '.[sunlight]' installs two"
    raise ProblemError(f"station {str(station)!r} is neither a file nor one of pvlib's; {listed}")


def read_station(station: str | Path, folder: str | Path = ".") -> Station:
    """Return the days of a TMY3 file; an error says file, row and column."""
    path = station_file(station, folder)
    try:
        stamp = path.stat()
        if stamp.st_size > LARGEST_FILE:
            raise StorageError(f"{path} has {stamp.st_size:,} bytes; a typical year has fewer than {LARGEST_FILE:,}")
        return parsed_station(path, stamp.st_mtime_ns)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=4)
def parsed_station(path: Path, changed: int) -> Station:
    """Return the days of a file, cached until it changes."""
    lines = read_lines(path)
    if len(lines) < 3 or not {DATE, TIME, RADIATION} <= set(lines[1][1]):
        raise ProblemError(f"{path}: row 2 of a TMY3 file names its columns, {DATE}, {TIME} and {RADIATION} among them")
    columns = [lines[1][1].index(name) for name in (DATE, TIME, RADIATION)]
    days: dict[str, list[float]] = {}
    for number, row in lines[2:]:
        date, hour, radiation = hour_of(row, columns, f"{path}, row {number}")
        day = days.setdefault(date, [])
        if hour != len(day) + 1:
            raise ProblemError(f"{path}, row {number}: hour {hour} of {date} follows hour {len(day)}")
        day.append(radiation)
    short = next((date for date, day in days.items() if len(day) != 24), None)
    if short is not None:
        raise ProblemError(f"{path}: {short} has {len(days[short])} hours, not 24")
    title = lines[0][1]
    name = title[1] if len(title) > 1 else path.name
    return Station(name, np.array([int(date[:2]) for date in days]), np.array(list(days.values())))


def hour_of(row: list[str], columns: Sequence[int], where: str) -> tuple[str, int, float]:
    """Return date, hour (1 .. 24, by its end) and radiation of a row."""
    try:
        date, time, radiation = (row[column] for column in columns)
        month, hour, value = int(date[:2]), int(time[:2]), float(radiation)
    except (IndexError, ValueError):
        raise ProblemError(f"{where}: it must hold a date, a time and a number of W/m^2") from None
    if not (1 <= month <= 12 and 1 <= hour <= 24 and 0 <= value < 10_000):
        raise ProblemError(f"{where}: {date} {time} with {radiation} W/m^2 is not an hour of a year")
    return date, hour, value


def station_days(
    station: str | Path,
    *,
    months: Sequence[int] = MONTHS,
    hours: Sequence[int] = (5, 24),
    unit: float = 100.0,
    max_arrival: int = 10,
    folder: str | Path = ".",
) -> Longs:
    """Return the arrivals [day, step] of a station in some months."""
    wanted = checked_months(months)
    first, last = check_hours(hours, "hours")
    size = check_number(unit, "unit", above=0, error=ProblemError)
    top = check_count(max_arrival, "max_arrival", 1, 1_000, error=ProblemError)
    found = read_station(station, folder)
    days = found.radiation[np.isin(found.months, wanted), first:last]
    if not len(days):
        raise ProblemError(f"months is {list(wanted)}; {station} has no day of them")
    return np.minimum(top, np.rint(days / size)).astype(np.int64)


def fit_arrivals(days: Any, *, max_arrival: int = 10, smoothing: float = 1.0) -> HourlyArrivals:
    """Return the arrivals fitted to days [day, step]; formulas at the top of this module."""
    top = check_count(max_arrival, "max_arrival", 1, 1_000, error=ProblemError)
    weight = check_number(smoothing, "smoothing", above=0, error=ProblemError)
    seen = as_sequences(days, "days", top)
    count, steps = seen.shape
    size = top + 1
    counted = np.array([np.bincount(seen[:, step], minlength=size) for step in range(steps)])
    marginals = (counted + weight / size) / (count + weight)
    matrices = np.empty((max(steps - 1, 0), size, size))
    for step in range(steps - 1):
        follows = np.zeros((size, size))
        np.add.at(follows, (seen[:, step], seen[:, step + 1]), 1.0)
        matrices[step] = (follows + weight * marginals[step + 1]) / (follows.sum(axis=1, keepdims=True) + weight)
    return HourlyArrivals(matrices, marginals[0])


def station_source(parameters: dict[str, Any], folder: Path) -> Path:
    """Return the file that the problem depends on."""
    return station_file(parameters["station"], folder)


@problem(
    "solar_transmitter",
    source=station_source,
    files=("station",),
    parts=("battery", "arrival"),
)
def solar_transmitter(
    *,
    station: str | Path,
    months: Sequence[int] = MONTHS,
    hours: Sequence[int] = (5, 24),
    unit: float = 100.0,
    max_arrival: int = 10,
    smoothing: float = 1.0,
    battery: int = 20,
    peak_power: float = 4,
    log_base: float = 2,
) -> EnergyHarvesting:
    """Return the problem of a solar transmitter, fitted on the days of `months`.

    `station` is a TMY3 file, or the name of one of pvlib's (`pip install '.[sunlight]'`). A step is an hour, from
    `hours[0]` to `hours[1]` o'clock; an energy unit is `unit` Wh/m^2 of radiation.
    """
    given = dict(locals())
    days = station_days(station, months=months, hours=hours, unit=unit, max_arrival=max_arrival)
    fitted = fit_arrivals(days, max_arrival=max_arrival, smoothing=smoothing)
    plain = energy_harvesting(
        horizon=days.shape[1], battery=battery, peak_power=peak_power, max_arrival=max_arrival, log_base=log_base
    )
    made = EnergyHarvesting(
        fitted, plain.horizon, plain.battery, plain.peak_power, plain.max_arrival, plain.log_base, "solar transmitter"
    )
    return remember(made, "solar_transmitter", {**given, "station": str(station)})


class JudgedDays(NamedTuple):
    """Result of a policy on recorded days: [day] each."""

    #: Sum of the rates, in the problem's logarithm.
    rates: Floats
    #: By how much the peak was exceeded, summed over the day.
    violations: Floats


def judge_days(problem: EnergyHarvesting, policy: Policy, days: Any) -> JudgedDays:
    """Return what `policy` earns and violates on recorded days [day, step]."""
    seen = as_sequences(days, "days", problem.arrivals.largest)
    if seen.shape[1] != problem.horizon:
        raise ProblemError(f"days hold {seen.shape[1]} steps; the problem has {problem.horizon}")
    rates, violations = np.zeros(len(seen)), np.zeros(len(seen))
    for day, arrivals in enumerate(seen.tolist()):
        level = 0
        for step, arrival in enumerate(arrivals):
            power: Any = policy.action(step, (level, arrival))
            rates[day] += problem.rates[power]
            violations[day] += max(0.0, power - problem.peak_power)
            level = min(problem.battery, level + arrival - power)
    return JudgedDays(rates, violations)


def checked_months(value: Any) -> tuple[int, ...]:
    """Return months, 1 .. 12."""
    check_numbers(value, "months")
    return tuple(check_count(month, "months", 1, 12, error=ProblemError) for month in value)
