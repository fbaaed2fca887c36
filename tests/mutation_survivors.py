"""Mutants that `mutation.py` made, that no test can notice, and why: {module: {"function: change": reason}}."""

SEARCH = "the search for nu takes another way; any nu is valid, and the bound is as near to the best one"
FASTER = "a shorter way to the same numbers is not taken"
ROOM = "more room than is read"
PROBED = "places of a hash table are tried in another order; half of them are as many as there are lists"
LOGGED = "there is room for no change or for many, never for one"
EQUALS = "of equals it does not matter which"
COLUMN = "the column is the first, 0"
RARE = "the two are equal with probability 2^-53"
HARMLESS = {
    "peakrl/storage.py": {
        "module: 22  ->  23": "a digest takes in larger portions",
        "_short: len(raw) <= 200  ->  len(raw) < 200": "a temporary name is another one, and as short",
        "_short: 200  ->  201": "a temporary name is another one, and as short",
        "_short: 16  ->  17": "a temporary name is another one, and as short",
        "opened: 0  ->  1": "wherever the tests run there is such a flag",
        "remove: True  ->  False": "whoever removes a file suppresses every OSError",
    },
    "peakrl/model/soundness.py": {
        "index_faults: 1  ->  2 #2": "what the least of no sizes is matters only where it is below 1",
    },
    "peakrl/model/files.py": {
        "checked: True  ->  False": "an array is copied once more",
    },
    "peakrl/model/visited_files.py": {
        "step_faults: 0  ->  1 #2": "nothing stands before the first place that it could repeat",
    },
    "peakrl/certificates/verify_exact.py": {
        "tables_of: 4000000 // (len(rows) + len(m.outcome_next))  ->  4000000 * (len(rows) + len(m.outcome_next))": (
            "more policies are followed at a time"
        ),
    },
    "peakrl/certificates/verify_sampled.py": {
        "highest_mean: 40  ->  41": SEARCH,
    },
    "peakrl/certificates/bounds.py": {
        "bound_at: 0.0  ->  1.0 #2": "whoever asks takes the lesser of it and 0",
        "best_room: 10.0  ->  11.0": SEARCH,
        "best_room: 0.0  ->  1.0 #2": "all values are the largest: a bound above 0, of which 0 is the lesser",
        "best_room: 1  ->  2 #3": "only the sign of the side is read",
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
        "first_totals: len(model.outcome_start) - 1  ->  len(model.outcome_start) + 1": ROOM,
    },
    "peakrl/planning/keeping.py": {
        "__init__: model.horizon >= SHORT  ->  model.horizon > SHORT": "the same policy is kept in another form",
        "lay_out: self.model.horizon - 1  ->  self.model.horizon + 1": "a slice ends where the array does",
    },
    "peakrl/kernels/settling.py": {
        "pair_of_row: 0  ->  1 #3": "values and costs come in twos: above 0 is above 1",
        "may_be_best: slot - work.here  ->  slot + work.here": "it is asked of stationary models only, where here is 0",
    },
    "peakrl/kernels/planning.py": {
        "value_of_mixture: layout.outcome_start.shape[0] - 1  ->  layout.outcome_start.shape[0] + 1": ROOM,
    },
    "peakrl/kernels/safety.py": {
        "dead_end_distances: 1  ->  2": "any number below 0 says that a state is safe",
    },
    "peakrl/kernels/evaluation.py": {
        "forward_totals: sent[d] > 0.0  ->  sent[d] >= 0.0": "0 is added to what there is",
    },
    "peakrl/kernels/reachability.py": {
        "reachable_nodes: layout.outcome_start.shape[0] - 1  ->  layout.outcome_start.shape[0] + 1": ROOM,
    },
    "peakrl/kernels/lists.py": {
        "number_lists: 1  ->  2 #3": "any number below 0 says that a place is free",
        "number_lists: 1  ->  2 #5": PROBED,
        "number_lists: 1  ->  2 #2": ROOM,
        "number_lists: size < 2 * lists  ->  size <= 2 * lists": ROOM,
        "number_lists: 2  ->  3": ROOM,
        "number_lists: place + 1  ->  place - 1": PROBED,
        "number_lists: 1  ->  2 #7": PROBED,
        "list_hash: begin + length  ->  begin - length": "lists of the same length share a hash, which takes longer",
        "distribution_fault: abs(total - 1.0) > ROUNDING  ->  abs(total - 1.0) >= ROUNDING": (
            "sums near 1 are multiples of 2^-53, and 1e-9 is none"
        ),
        "repeated_member: 1  ->  2": "any number below 0 is no list",
    },
    "peakrl/kernels/counting.py": {
        "learn_counting: changes + counts.greedy.size > log.node.shape[0]  ->  "
        "changes + counts.greedy.size >= log.node.shape[0]": "a call ends an episode earlier, and the next one goes on",
    },
    "peakrl/kernels/learning.py": {
        "bernstein_bonus: bonus.mu[entry] + following  ->  bonus.mu[entry] - following": "only its square is read",
        "learn_episodes: 0  ->  1 #3": LOGGED,
        "learn_played: 0  ->  1 #2": LOGGED,
        "rescan: value < best  ->  value <= best": EQUALS,
        "rescan: lower > runner  ->  lower >= runner": EQUALS,
        "rescan: value > best  ->  value >= best #2": EQUALS,
        "update: cell + W  ->  cell - W": COLUMN,
        "rescan: cell + W  ->  cell - W": COLUMN,
        "learn_played: ahead + W  ->  ahead - W": COLUMN,
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
        "upper_mean: abs(y - wanted) < precision * wanted  ->  abs(y - wanted) <= precision * wanted": SEARCH,
        "upper_mean: before_y > 0.0  ->  before_y >= 0.0": "it is -1, or above 0",
        "moments: count[i] > 0  ->  count[i] >= 0 #2": "0 is added to what there is",
        "upper_mean: bound - mean > NEAR * (abs(bound) + abs(least))  ->  "
        "bound - mean >= NEAR * (abs(bound) + abs(least))": "where all is 0 the search ends at 0 as well",
        "upper_mean: 1.0  ->  2.0 #2": "read only where it is above 0, and set before that",
    },
    "peakrl/kernels/certified/values.py": {
        "following_value: step + 1  ->  step - 1 #3": SEARCH,
    },
    "peakrl/kernels/certified/candidates.py": {
        "fallback: 1  ->  2": "any number below 0 says that there is none yet",
    },
    "peakrl/kernels/primal_dual.py": {
        "plan_anew: rules.heat > 0.0  ->  rules.heat >= 0.0 #2": "a factor of 0 makes 0 of it as well",
    },
    "peakrl/kernels/triple_q.py": {
        "choose: 0  ->  1 #2": LOGGED,
    },
    "peakrl/certificates/verify_learned.py": {
        "read: 1  ->  2 #2": "in a layered model one line is all that there is",
        "read: 0  ->  1 #13": "of counts only those above 0 are kept",
    },
    "peakrl/kernels/untried.py": {
        "survival_low: last - first  ->  last + first": "what comes after a law's own outcomes is not read",
        "reached_by: True  ->  False": "nothing leads back to the first step",
    },
}
