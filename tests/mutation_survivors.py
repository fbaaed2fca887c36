"""Mutants that `mutation.py` made, that no test can notice, and why: {module: {"function: change": reason}}."""

SEARCH = "the search for nu takes another way; any nu is valid, and the bound is as near to the best one"
FASTER = "a shorter way to the same numbers is not taken"
RARE = "the two are equal with probability 2^-53"
HARMLESS = {
    "peakrl/storage.py": {
        "streamed_record: 22  ->  23": "a file is read in larger portions",
        "_short: len(raw) <= 200  ->  len(raw) < 200": "a temporary name is another one, and as short",
        "_short: 200  ->  201": "a temporary name is another one, and as short",
        "opened: 0  ->  1": "wherever the tests run there is such a flag",
    },
    "peakrl/certificates/bounds.py": {
        "module: 60  ->  61": SEARCH,
        "best_room: above <= 0.0  ->  above < 0.0": SEARCH,
        "best_room: side < 0  ->  side <= 0": SEARCH,
        "best_room: side > 0  ->  side >= 0": SEARCH,
        "best_room: 0  ->  1 #3": SEARCH,
        "best_room: 2  ->  3 #2": SEARCH,
        "best_room: above / 2  ->  above * 2": SEARCH,
        "best_room: high - low <= CLOSE  ->  high - low < CLOSE": SEARCH,
        "bound_at: mean + room <= 0.0  ->  mean + room < 0.0": "no number then: the trivial bound stands",
    },
    "peakrl/planning/exact.py": {
        "may_violate: model.payoffs.constraints < 0.0  ->  model.payoffs.constraints <= 0.0": FASTER,
        "row_rewards: model.payoffs.stride == 0  ->  model.payoffs.stride != 0": FASTER,
        "row_rewards: 0  ->  1": FASTER,
        "row_rewards: len(record) == len(reward)  ->  len(record) != len(reward)": FASTER,
        "_by_node: False  ->  True": "more is kept than anybody asks for",
    },
    "peakrl/kernels/learning.py": {
        "rescan: value < best  ->  value <= best": "of equals it does not matter which",
    },
    "peakrl/kernels/sampling.py": {
        "fill_tables: accept[o] < 1.0  ->  accept[o] <= 1.0": "a full column never draws its alias, whatever it is",
        "draw_alias: scaled - column < accept[index]  ->  scaled - column <= accept[index]": RARE,
    },
    "peakrl/kernels/certified/bounds.py": {
        "upper_mean: 0.5 * (bound - mean)  ->  0.5 / (bound - mean)": SEARCH,
        "upper_mean: 10.0  ->  11.0": SEARCH,
        "upper_mean: bound + 0.5 * (bound - mean)  ->  bound - 0.5 * (bound - mean)": SEARCH,
        "upper_mean: following >= limit  ->  following > limit": SEARCH,
        "moments: 0.0  ->  1.0 #2": SEARCH,
    },
    "peakrl/kernels/untried.py": {
        "survival_low: last - first  ->  last + first": "what comes after a law's own outcomes is not read",
        "reached_by: True  ->  False": "nothing leads back to the first step",
    },
}
