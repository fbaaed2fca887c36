"""What primal-dual learners on counts work on (formulas: `primal_dual`)."""

from __future__ import annotations

from typing import NamedTuple

from peakrl.sampling import Words
from peakrl.types import Floats, Ints, Longs

#: What is done when it is time to.
PLAN, IMPROVE, BISECT = 0, 1, 2
#: Places in `Dual.status`: the episode that plans next, plans so far, points of the curve.
NEXT_PLAN, PLANS, POINTS = 0, 1, 2
STATUS_SIZE = 3


class Dual(NamedTuple):
    """What is learned beside the counts."""

    #: [row, quantity]: sum of charges; [row]: b.
    charge: Floats
    width: Floats
    #: [slot, column (+ 1 where steps share slots), cost]: C.
    cost: Floats
    #: [slot, 1 + cost]: V and C of the step after, or in tables by step of all of them.
    near: Floats
    #: [row]: its law, where laws are known; [law, 1 + cost]: what comes after it; [law]: the column of that.
    law: Longs
    ahead: Floats
    found: Longs
    #: [row, column]: log pi, pi, and L as it was found last.
    preference: Floats
    chance: Floats
    gain: Floats
    #: [slot, column]: the row of largest L.
    plan: Longs
    #: [cost]: lam, C from where episodes began, and room for the costs of a row.
    price: Floats
    expected: Floats
    row_cost: Floats
    status: Longs
    #: [point, 1 + cost]: episode, lam.
    curve: Floats
    #: The stream that actions are drawn with.
    words: Words


class Rules(NamedTuple):
    """Numbers that the settings come to."""

    horizon: int
    node_stride: int
    shift: int
    row_start: Longs
    slot_step: Longs
    #: [slot]: in the order of planning, the last step first.
    order: Longs
    rule: int
    known: bool
    hoeffding: bool
    lowest: float
    span: float
    #: Scale of b, H included, l, and S.
    bonus: float
    log_term: float
    states: int
    #: [cost]
    ranges: Floats
    limit: Floats
    price_step: Floats
    most: Floats
    policy_step: float
    mixing: float
    #: c of the temperature; 0: constant steps.
    heat: float
    quantities: int
    by_step: bool
    #: Episodes from one plan to the next, and from one point of the curve to the next.
    batch: int
    keep: int


class Path(NamedTuple):
    """[step]: an episode. Charges are [step, quantity]."""

    row: Longs
    following: Longs
    reward: Floats
    violation: Floats
    charge: Floats


class Truth(NamedTuple):
    """What the model says of a policy, and room to work it out, [slot, column (+ 1), 2]."""

    first_slot: Ints
    first_probability: Floats
    #: [row, 2]: expected reward and total violation.
    payoff: Floats
    table: Floats
    #: [distribution, 2]: what comes after it, and [distribution]: in which column that was worked out last.
    ahead: Floats
    known: Longs
    #: [2]: value and violation.
    found: Floats
