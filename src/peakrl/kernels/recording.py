"""The points of a learning curve, taken while episodes go by.

With v_k the value (or violation) of pi^k, a point at episode k holds k, v_k, the mean (v_1 + ... + v_k) / k and what
the episode itself brought. Sums run in order of episode, whatever the chunks, so that a resumed run adds up alike.
"""

from __future__ import annotations

from peakrl.kernels.arrays import Floats
from peakrl.kernels.jit import loop

#: Columns of a point: k, v_k, its mean and the experience, each of the latter three twice (reward, violation).
POINT_COLUMNS = 7


@loop
def take_points(exact: Floats, experience: Floats, sums: Floats, done: int, every: int, points: Floats) -> int:
    """Fill `points` from episodes done+1 ..; return how many episodes were multiples of `every`.

    `exact` and `experience` are [episode, 2]. One more point, the latest episode, stands last where it is no multiple;
    `points` [point, column] must have room for it. `sums` [2] is carried from call to call.
    """
    count = exact.shape[0]
    wait, taken = every - done % every, 0
    for j in range(count):
        sums[0] += exact[j, 0]
        sums[1] += exact[j, 1]
        wait -= 1
        if wait == 0 or j == count - 1:
            episode = done + j + 1
            points[taken, 0] = episode
            for i in range(2):
                points[taken, 1 + i] = exact[j, i]
                points[taken, 3 + i] = sums[i] / episode
                points[taken, 5 + i] = experience[j, i]
        if wait == 0:
            wait = every
            taken += 1
    return taken
