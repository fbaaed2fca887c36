"""Mutants that `mutation.py` made, that no test can notice, and why: {module: {"function: change": reason}}."""

SEARCH = "the search for nu takes another way; any nu is valid, and the bound is as near to the best one"
FASTER = "a shorter way to the same numbers is not taken"
START = "where a search begins; it ends at the same place"
RARE = "the two are equal with probability 2^-53"
BEYOND = "the table ends beyond the visits of any run"
HARMLESS = {
    "peakrl/certificates/bounds.py": {
        "module: 60  ->  61": SEARCH,
        "best_room: above <= 0.0  ->  above < 0.0": SEARCH,
        "best_room: side < 0  ->  side <= 0": SEARCH,
        "best_room: 0  ->  1": SEARCH,
        "best_room: 2  ->  3": SEARCH,
        "bound_at: mean + room <= 0.0  ->  mean + room < 0.0": "no number then: the trivial bound stands",
    },
    "peakrl/planning/exact.py": {
        "may_violate: model.payoffs.constraints < 0.0  ->  model.payoffs.constraints <= 0.0": FASTER,
        "row_rewards: model.payoffs.stride == 0  ->  model.payoffs.stride != 0": FASTER,
        "row_rewards: 0  ->  1": FASTER,
        "_by_node: False  ->  True": "more is kept than anybody asks for",
    },
    "peakrl/kernels/learning.py": {
        "update: t < rates.alpha.shape[0]  ->  t <= rates.alpha.shape[0]": BEYOND,
        "learn_played: cell + GREEDY  ->  cell - GREEDY": "a node is looked through once more, with the same result",
        "rescan: value < best  ->  value <= best": "of equals it does not matter which",
    },
    "peakrl/kernels/sampling.py": {
        "draw_alias: scaled - column < accept[index]  ->  scaled - column <= accept[index]": RARE,
    },
    "peakrl/kernels/certified/bounds.py": {
        "upper_mean: y - wanted  ->  y + wanted": SEARCH,
        "upper_mean: NEAR * (abs(bound) + abs(least))  ->  NEAR / (abs(bound) + abs(least))": SEARCH,
        "upper_mean: 10.0  ->  11.0": SEARCH,
    },
    "peakrl/kernels/certified/values.py": {
        "following_value: step + 1  ->  step - 1": START,
    },
}
