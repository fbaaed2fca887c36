"""Models in the PRISM language, and what Storm says of them.

    PYTHONPATH=tests python tests/helpers/storm_models.py      needs stormpy

writes tests/formats/storm: the UMB file that Storm makes of each model, and its answers as JSON.
"""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "formats" / "storm"
#: Steps of the bounded properties.
STEPS = (1, 4, 11)

MODELS = {
    # choices without a name, a name twice in a state, fractions, state and action rewards
    "machine": (
        {"N": 2},
        """mdp
const int N;
module machine
  heat : [0..N] init 0;
  worn : bool init false;
  [rest] true -> (heat' = max(heat - 1, 0));
  [run] heat < N -> 1/3 : (heat' = heat) & (worn' = true) + 2/3 : (heat' = heat + 1);
  [run] worn & heat < N -> 1/7 : (heat' = heat + 1) + 6/7 : (worn' = false);
  [] heat = N -> (heat' = N);
  [] heat = 1 -> 0.4 : (heat' = 0) + 0.6 : (heat' = 2);
endmodule
label "bad" = heat = N;
rewards "earned"
  [run] true : 2;
  heat = 1 : 1/7;
  worn : -0.25;
endrewards
""",
    ),
    "die": (  # a Markov chain
        {},
        """dtmc
module die
  s : [0..7] init 0;
  d : [0..6] init 0;
  [] s = 0 -> 0.5 : (s' = 1) + 0.5 : (s' = 2);
  [] s = 1 -> 0.5 : (s' = 3) + 0.5 : (s' = 4);
  [] s = 2 -> 0.5 : (s' = 5) + 0.5 : (s' = 6);
  [] s = 3 -> 0.5 : (s' = 1) + 0.5 : (s' = 7) & (d' = 1);
  [] s = 4 -> 0.5 : (s' = 7) & (d' = 2) + 0.5 : (s' = 7) & (d' = 3);
  [] s = 5 -> 0.5 : (s' = 7) & (d' = 4) + 0.5 : (s' = 7) & (d' = 5);
  [] s = 6 -> 0.5 : (s' = 2) + 0.5 : (s' = 7) & (d' = 6);
  [] s = 7 -> (s' = 7);
endmodule
label "bad" = d = 6;
rewards "flips"
  s < 7 : 1;
endrewards
""",
    ),
    "grid": (
        {"N": 4},
        """mdp
const int N;
const double slip = 0.1;
module robot
  x : [0..N] init 0;
  y : [0..N] init 0;
  [right] x < N -> 1 - slip : (x' = x + 1) + slip : (y' = min(y + 1, N));
  [left] x > 0 -> 1 - slip : (x' = x - 1) + slip : true;
  [up] y < N -> (y' = y + 1);
  [down] y > 0 -> 0.5 : (y' = y - 1) + 0.5 : (x' = max(x - 1, 0));
  [stay] true -> true;
endmodule
label "bad" = x = 2 & y > 1 | x = N & y = 0;
rewards "goal"
  x = N & y = N : 1;
endrewards
""",
    ),
    "gambler": (
        {},
        """mdp
const double p = 0.45;
module gambler
  coins : [0..8] init 3;
  [one] coins > 0 & coins < 8 -> p : (coins' = coins + 1) + 1 - p : (coins' = coins - 1);
  [two] coins > 1 & coins < 7 -> p : (coins' = coins + 2) + 1 - p : (coins' = coins - 2);
  [wait] coins > 4 -> (coins' = coins);
  [over] coins = 0 | coins = 8 -> true;
endmodule
label "bad" = coins = 0;
rewards "won"
  [one] coins = 7 : p;
  [two] coins = 6 : p;
  [wait] true : 0.01;
endrewards
""",
    ),
    "queue": (
        {},
        """mdp
module arrivals
  burst : bool init false;
  [slow] true -> 0.8 : (burst' = false) + 0.2 : (burst' = true);
  [fast] true -> 0.8 : (burst' = false) + 0.2 : (burst' = true);
endmodule
module queue
  n : [0..6] init 2;
  [slow] !burst -> 0.7 : (n' = n) + 0.3 : (n' = min(n + 1, 6));
  [slow] burst -> 0.4 : (n' = min(n + 1, 6)) + 0.6 : (n' = min(n + 2, 6));
  [fast] !burst -> 0.9 : (n' = max(n - 1, 0)) + 0.1 : (n' = n);
  [fast] burst -> 0.5 : (n' = n) + 0.5 : (n' = min(n + 1, 6));
endmodule
label "bad" = n = 6;
rewards "cost"
  n > 3 : n;
  [fast] true : 1.5;
endrewards
""",
    ),
    "mutex": (
        {},
        """mdp
module first
  p : [0..2] init 0;
  [] p = 0 -> 0.5 : (p' = 1) + 0.5 : true;
  [] p = 1 & q < 2 -> (p' = 2);
  [] p = 1 -> 0.9 : true + 0.1 : (p' = 2);
  [] p = 2 -> (p' = 0);
endmodule
module second = first [p = q, q = p] endmodule
label "bad" = p = 2 & q = 2;
rewards "served"
  p = 2 : 1;
  q = 2 : 1;
endrewards
""",
    ),
    "battery": (
        {"B": 6},
        """mdp
const int B;
module battery
  charge : [0..B] init 2;
  sun : bool init true;
  [idle] true -> 0.5 : (charge' = min(charge + (sun ? 1 : 0), B)) & (sun' = true)
               + 0.5 : (charge' = min(charge + (sun ? 1 : 0), B)) & (sun' = false);
  [send] charge > 0 -> 0.6 : (charge' = charge - 1) + 0.4 : (charge' = max(charge - 2, 0)) & (sun' = !sun);
endmodule
label "bad" = charge = 0;
label "full" = charge = B;
rewards "sent"
  [send] true : 1;
endrewards
rewards "wasted"
  charge = B & sun : 1;
endrewards
""",
    ),
    "elevator": (
        {},
        """mdp
module elevator
  level : [0..4] init 0;
  call : [-1..4] init -1;
  door : bool init false;
  [up] level < 4 & !door -> 0.95 : (level' = level + 1) + 0.05 : true;
  [down] level > 0 & !door -> (level' = level - 1);
  [open] !door -> (door' = true) & (call' = call = level ? -1 : call);
  [close] door -> 0.75 : (door' = false) + 0.25 : (door' = false) & (call' = call < 0 ? 3 : call);
endmodule
label "bad" = door & level = 2;
rewards "waiting"
  call >= 0 : 1;
endrewards
""",
    ),
    "backoff": (
        {"K": 3},
        """mdp
const int K;
module sender
  s : [0..3] init 0;
  tries : [0..K] init 0;
  wait : [0..3] init 0;
  [send] s = 0 -> 0.3 : (s' = 1) + 0.7 : (s' = 3);
  [retry] s = 1 & tries < K -> 1/2 : (s' = 2) & (tries' = tries + 1) & (wait' = 1)
                             + 1/2 : (s' = 2) & (tries' = tries + 1) & (wait' = 3);
  [lose] s = 1 & tries = K -> (s' = 3);
  [cancel] s = 1 -> (s' = 3) & (tries' = 0);
  [tick] s = 2 & wait > 0 -> (wait' = wait - 1);
  [again] s = 2 & wait = 0 -> (s' = 0);
  [done] s = 3 -> (s' = 3);
endmodule
label "bad" = s = 1 & tries = K;
rewards "time"
  s < 3 : 1;
endrewards
""",
    ),
    "inventory": (
        {},
        """mdp
formula after = min(stock + order, 5);
module shop
  stock : [0..5] init 2;
  order : [0..2] init 0;
  day : bool init true;
  [none] day -> (order' = 0) & (day' = false);
  [one] day -> (order' = 1) & (day' = false);
  [two] day -> (order' = 2) & (day' = false);
  [sale] !day -> 0.2 : (stock' = after) & (day' = true)
               + 0.5 : (stock' = max(after - 1, 0)) & (day' = true)
               + 0.3 : (stock' = max(after - 2, 0)) & (day' = true);
endmodule
label "bad" = day & stock = 0;
rewards "profit"
  [one] true : -1;
  [two] true : -1.8;
  [sale] true : 0.9 * min(stock, 1) + 0.4 * min(stock, 2);
endrewards
""",
    ),
    "jobs": (  # every deadlock is an end
        {},
        """mdp
module clock
  t : [0..12] init 0;
  a : bool init false;
  b : bool init false;
  [a] !a & t < 9 -> 0.6 : (a' = true) & (t' = t + 2) + 0.4 : (a' = true) & (t' = t + 3);
  [b] !b & t < 9 -> 0.7 : (b' = true) & (t' = t + 3) + 0.3 : (b' = true) & (t' = t + 4);
  [both] !a & !b & t = 0 -> 1/3 : (a' = true) & (b' = true) & (t' = 4) + 2/3 : (a' = true) & (b' = true) & (t' = 8);
  [wait] !(a & b) & t < 9 -> (t' = t + 1);
endmodule
label "bad" = (t > 6 & !b) | t > 7;
rewards "done"
  [a] true : 10 - t;
  [b] true : 2 * (10 - t);
  [both] true : 25;
endrewards
""",
    ),
    "bad_start": (  # the first state carries the label
        {},
        """mdp
module walk
  x : [0..3] init 3;
  [left] x > 0 -> (x' = x - 1);
  [right] x < 3 -> 0.5 : (x' = x + 1) + 0.5 : true;
  [stay] true -> true;
endmodule
label "bad" = x = 3;
rewards "left"
  [left] true : x;
endrewards
""",
    ),
    "coins": (  # thousands of states; signed and offset variables
        {"N": 12},
        """mdp
const int N;
module coins
  sum : [-N..N] init 0;
  turn : [0..12] init 0;
  last : [0..2] init 0;
  [fair] turn < 12 -> 1/2 : (sum' = max(sum - 1, -N)) & (turn' = turn + 1) & (last' = 0)
                     + 1/2 : (sum' = min(sum + 1, N)) & (turn' = turn + 1) & (last' = 1);
  [bold] turn < 12 & last < 2 -> 1/6 : (sum' = min(sum + 5, N)) & (turn' = turn + 1) & (last' = 2)
                     + 5/6 : (sum' = max(sum - 1, -N)) & (turn' = turn + 1) & (last' = 0);
  [pass] turn < 12 -> (turn' = turn + 1) & (last' = 0);
  [end] turn = 12 -> true;
endmodule
label "bad" = sum < -3;
rewards "gain"
  [end] sum > 0 : sum;
  [bold] true : 0.1;
endrewards
""",
    ),
}


def source(name, folder):
    """Write the PRISM source of a model; return its path and constants."""
    path = Path(folder) / f"{name}.prism"
    path.write_text(MODELS[name][1])
    return path, MODELS[name][0]


def answers(name, folder):
    """Let Storm build a model; write its UMB file into `folder` and return the model's sizes and values."""
    import stormpy

    path, constants = source(name, folder)
    program = stormpy.parse_prism_program(path)
    if constants:
        program, _ = stormpy.instantiate_constants(program, constants)
    built = stormpy.build_model(program, options=stormpy.BuilderOptions(build_full=True))
    stormpy.io.export_to_umb(built, Path(folder) / f"{name}.umb")
    reward = rewards(name)[0]

    def every(text):
        (asked,) = stormpy.parse_properties(text, program)
        found = stormpy.model_checking(built, asked, only_initial_states=False)
        return [float(found.get_value(state)) for state in range(built.nr_states)]

    least = "" if MODELS[name][1].startswith("dtmc") else "min"
    most = least.replace("min", "max")
    return {
        "states": built.nr_states,
        "choices": built.nr_choices if least else built.nr_states,
        "branches": built.nr_transitions,
        "initial": list(built.initial_states),
        "most": {steps: every(f'R{{"{reward}"}}{most}=? [C<={steps}]') for steps in STEPS},
        "least": {steps: every(f'R{{"{reward}"}}{least}=? [C<={steps}]') for steps in STEPS},
        "bad": {steps: every(f'P{least}=? [F<={steps} "bad"]') for steps in STEPS},
        "ever": every(f'P{least}=? [F "bad"]'),
    }


def rewards(name):
    """Return the names of the reward structures of a model."""
    return [line.split('"')[1] for line in MODELS[name][1].splitlines() if line.startswith("rewards")]


if __name__ == "__main__":
    import tempfile

    FOLDER.mkdir(exist_ok=True)
    for each in MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            found = answers(each, scratch)
            (FOLDER / f"{each}.umb").write_bytes((Path(scratch) / f"{each}.umb").read_bytes())
        (FOLDER / f"{each}.json").write_text(json.dumps(found))
        print(each, found["states"], found["choices"], found["branches"], sum(p == 0 for p in found["ever"]))
