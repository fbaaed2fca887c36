"""Optimistic Q-learning in pure-Python packages, where they are installed (`pip install peakrl[peers]`)."""

from __future__ import annotations

import importlib
import logging
from typing import Any

import numpy as np

from peakrl.benchmark.kernels import bare_run, problems
from peakrl.benchmark.sections import Section, in_turns
from peakrl.kernels.arrays import Floats
from peakrl.learning.settings import LearnerSettings
from peakrl.model.tabular import TabularModel


def peer_rates(section: Section, repeats: int, quick: bool) -> None:
    """Energy harvesting with random arrivals in rlberry's OptQL, a dense finite problem, against our kernel."""
    model, episodes = problems(quick)["energy harvesting, random arrivals"]
    try:
        agent_class, environment = rlberry_parts()
    except ImportError as error:
        section.notes.append(f"rlberry left out ({error}): pip install 'peakrl[peers]'")
        return
    few = 20 if quick else 500
    agent = agent_class(environment(*dense_arrays(model)), horizon=model.horizon, gamma=1.0)
    ours = in_turns([bare_run(model, LearnerSettings.paper(0.1), episodes)], repeats)[0] / (episodes * model.horizon)
    theirs = in_turns([lambda: agent.fit(budget=few)], repeats)[0] / (few * model.horizon)
    for name, seconds in (("peakrl, bernstein", ours), ("rlberry OptQL", theirs)):
        section.add(package=name, **{"million steps a second": 1e-6 / seconds, "ns a step": 1e9 * seconds})


def rlberry_parts() -> tuple[Any, Any]:
    """Return rlberry's agent and its finite environment."""
    gym_logger: Any = importlib.import_module("gymnasium.logger")
    if not hasattr(gym_logger, "set_level"):
        # rlberry 0.6 calls on import what gymnasium 1.0 dropped.
        gym_logger.set_level = lambda level: None
    agents, finite = importlib.import_module("rlberry.agents.optql"), importlib.import_module("rlberry.envs.finite")
    logging.getLogger("rlberry_logger").setLevel(logging.ERROR)
    return agents.OptQLAgent, finite.FiniteMDP


def dense_arrays(model: TabularModel) -> tuple[Floats, Floats, Floats]:
    """Rewards [state, action], transitions [state, action, next], first distribution; what is not offered stays put."""
    states, actions = model.num_slots, len(model.action_labels)
    rewards, transitions = np.zeros((states, actions)), np.zeros((states, actions, states))
    transitions[np.arange(states), :, np.arange(states)] = 1.0
    layout = model.layout
    for slot in range(states):
        for row in model.rows_of_slot(slot):
            action, d = int(model.row_action[row]), int(layout.row_distribution[row])
            outcomes = slice(int(layout.outcome_start[d]), int(layout.outcome_start[d + 1]))
            transitions[slot, action] = 0.0
            np.add.at(transitions[slot, action], layout.outcome_next[outcomes], layout.outcome_probability[outcomes])
            rewards[slot, action] = model.row_reward[row]
    first = np.zeros(states)
    first[model.first_slot] = model.first_probability
    return rewards, transitions, first
