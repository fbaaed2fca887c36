"""The pictures of built-in problems show the episode that was played, and nothing where there is nothing to show."""

from __future__ import annotations

from types import SimpleNamespace

from peakrl import compile_model, rollout, solve
from peakrl.problems import energy_harvesting
from peakrl.problems.charging import vehicle_charging
from peakrl.problems.flow_shops import flow_shop, schedule_of
from peakrl.problems.heating import thermostat
from peakrl.problems.robots import battery_robot
from peakrl.report.analysis import ModelAnalysis
from peakrl.report.charts import PICTURES, picture_blocks


def played(problem, **changes):
    """Findings of the optimal policy, as far as pictures ask for them."""
    model = compile_model(problem)
    policy = solve(model).policy
    told = SimpleNamespace(spec=changes.get("spec", model.spec), horizon=model.horizon)
    return SimpleNamespace(exact=ModelAnalysis(told), episode=rollout(model, policy)), policy


def curves(block):
    return {series.name: list(series.y) for series in block.series}


def test_a_thermostats_picture_shows_temperatures_within_their_band():
    found, _ = played(thermostat())
    band, heating = picture_blocks(found)
    shown = curves(band)
    assert all(
        low <= inside <= high
        for low, inside, high in zip(shown["not below"], shown["inside"], shown["not above"], strict=True)
    )
    # What an hour leads to is what the next hour begins with.
    assert [2 * degrees for degrees in shown["inside"][:-1]] == [one.state[0] for one in found.episode[1:]]
    assert curves(heating)["heating (kW)"] == [one.action for one in found.episode]


def test_the_connections_picture_adds_the_cars_to_the_household():
    found, _ = played(vehicle_charging())
    (chart,) = picture_blocks(found)
    shown = curves(chart)
    assert shown["and car 2"] == [one.state[0] + sum(one.action) for one in found.episode]
    assert max(shown["and car 2"]) <= shown["limit"][0] == 5.0


def test_the_robots_picture_shows_its_way_from_the_start_and_its_battery():
    found, _ = played(battery_robot())
    floor, battery = picture_blocks(found)
    way = next(series for series in floor.series if series.name == "path")
    # Rows count from the top, as on the map: the start lies in the lowest, the goal in the first.
    assert (way.x[0], way.y[0]) == (2, 4)
    assert curves(floor)["goal"] == [0]
    assert floor.data["down_y"] is True
    assert curves(battery)["battery"] == [one.state[2] for one in found.episode]


def test_the_shops_picture_is_the_schedule():
    problem = flow_shop()
    found, policy = played(problem)
    (gantt,) = picture_blocks(found)
    bars = {(bar["job"], bar["start"], bar["end"]) for bar in gantt.content["bars"]}
    assert bars == {(f"{one.job} on machine {one.machine}", one.start, one.end) for one in schedule_of(problem, policy)}
    assert max(end for _, _, end in bars) == 13


def test_a_run_that_does_not_truly_tell_its_problem_has_no_picture():
    for spec in [
        None,
        {"kind": "nonsense"},
        {"kind": "thermostat", "horizon": -1},
        {"kind": "thermostat", "horizon": 3},
        {"kind": "battery_robot", "horizon": 24},
        {"kind": "flow_shop", "horizon": 24},
    ]:
        found, _ = played(thermostat(), spec=spec)
        assert picture_blocks(found) == []


def test_a_problem_without_a_picture_has_none():
    assert "energy_harvesting" not in PICTURES
    assert picture_blocks(played(energy_harvesting(horizon=2, battery=2, max_arrival=2))[0]) == []
