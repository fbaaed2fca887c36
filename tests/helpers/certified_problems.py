"""Tiny problems on which a wrong bound shows: rare jackpots, rare catastrophes, near-ties, one state, one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peakrl import Outcome, Problem, TabularModel, solve


def share_of_best(model, share):
    """A share, or several, of the best safe value of a model, as an epsilon."""
    best = abs(solve(model).value)
    return tuple(best * one for one in share) if isinstance(share, tuple) else best * share


def rare_jackpot(chance=0.02):
    """From state 0, action 1 leads with a small chance to a state that pays; action 0 pays a little for sure."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, 0, 2] = 1
    transitions[0, 1, 1], transitions[0, 1, 2] = chance, 1 - chance
    transitions[1, :, 1] = transitions[2, :, 2] = 1
    rewards = np.array([[0.01, 0.0], [1.0, 1.0], [0.0, 0.0]])
    return TabularModel.from_arrays(transitions, rewards, np.ones((1, 3, 2)), 3, reward_range=(0.0, 1.0))


def rare_catastrophe(chance=0.03):
    """Action 1 pays more, and leads with a small chance to a state in which everything violates."""
    transitions = np.zeros((2, 2, 2))
    transitions[0, 0, 0] = 1
    transitions[0, 1] = 1 - chance, chance
    transitions[1, :, 1] = 1
    constraints = np.array([[[1.0, 1.0], [-1.0, -1.0]]])
    rewards = np.array([[0.5, 1.0], [0.0, 0.0]])
    return TabularModel.from_arrays(transitions, rewards, constraints, 3, reward_range=(0.0, 1.0))


def near_tie():
    """Two actions whose next states differ by a hair."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, 0] = 0, 0.5, 0.5
    transitions[0, 1] = 0, 0.48, 0.52
    transitions[1, :, 0] = transitions[2, :, 0] = 1
    rewards = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.1]])
    return TabularModel.from_arrays(transitions, rewards, np.ones((1, 3, 2)), 4, reward_range=(0.0, 1.0))


def rare_first():
    """A rare first state is worth everything."""
    transitions = np.zeros((2, 2, 2))
    transitions[0, :, 0] = transitions[1, :, 1] = 1
    rewards = np.array([[0.0, 0.05], [1.0, 0.0]])
    return TabularModel.from_arrays(
        transitions, rewards, np.ones((1, 2, 2)), 2, initial=[0.97, 0.03], reward_range=(0.0, 1.0)
    )


@dataclass(frozen=True)
class Lottery(Problem):
    """One state, one step: a sure reward, or a ticket that rarely wins and more rarely violates."""

    horizon: int = 1
    wins: float = 0.03
    reward_range: tuple[float, float] = (0.0, 1.0)
    constraint_names: tuple[str, ...] = ("limit",)
    constraint_bounds: tuple[float, ...] = (1.0,)
    stationary: bool = True
    name: str = "lottery"

    def initial(self):
        return [(1.0, "here")]

    def actions(self, step, state):
        return ["sure", "ticket", "risk"]

    def outcomes(self, step, state, action):
        if action == "sure":
            return [Outcome(1.0, "here", 0.02, (1.0,))]
        if action == "ticket":
            return [Outcome(self.wins, "here", 1.0, (1.0,)), Outcome(1 - self.wins, "here", 0.0, (1.0,))]
        return [Outcome(0.98, "here", 1.0, (1.0,)), Outcome(0.02, "here", 0.0, (-1.0,))]
