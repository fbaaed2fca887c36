"""The seeds of episodes, many at a time, against numpy's one by one."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.certified_problems import near_tie
from helpers.model_environment import ModelEnvironment
from peakrl import learn
from peakrl.targets.seeds import STRETCH, EpisodeSeeds, episode_seeds


def one_by_one(seed, first, count):
    return [int(np.random.SeedSequence((seed, first + k)).generate_state(1)[0]) for k in range(count)]


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1])
@pytest.mark.parametrize("first", [0, 1, 12_345, 2**32 - 3, 2**32 + 5])
def test_a_stretch_of_seeds_is_what_numpy_gives_one_by_one(seed, first):
    assert episode_seeds(seed, first, 6) == one_by_one(seed, first, 6)


@pytest.mark.parametrize("kind", [np.int8, np.uint32, np.int64, np.uint64])
def test_a_seed_of_a_type_of_numpy_s_is_the_number_that_it_is(kind):
    runs = [learn(ModelEnvironment(near_tie(), 0), episodes=4, seed=seed, states=3) for seed in (kind(101), 101)]
    assert runs[0].seed == runs[1].seed
    assert np.array_equal(runs[0].history.episode_reward, runs[1].history.episode_reward)


def test_an_episode_has_its_seed_whatever_was_asked_for_before():
    seeds = EpisodeSeeds(7)
    for episode in (1, 2, STRETCH, STRETCH + 1, STRETCH + 2, 3):
        assert [seeds[episode]] == one_by_one(7, episode, 1)
