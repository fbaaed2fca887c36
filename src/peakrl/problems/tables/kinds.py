"""Problems listed in a table as a kind of problem."""

from __future__ import annotations

from peakrl.specs.registry import Kind, Template

TEMPLATE = """# A problem as a list of outcomes. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "tables"                   # the others: {others}
file = "{name}.csv"               # one row for each outcome: state, action, next_state, reward, probability, step;
                                  # every other column is a constraint (satisfied if >= 0). Or an .npz with the arrays
                                  # transitions [state, action, next_state], rewards, constraints
horizon = 10
initial = "cold"                  # a state, or {{ cold = 0.5, warm = 0.5 }}
"""

TABLE = """state,action,next_state,probability,reward,temperature
cold,rest,cold,1,0,40
cold,work,warm,0.8,1,20
cold,work,hot,0.2,1,5
warm,rest,cold,1,0,40
warm,work,hot,0.5,2,5
warm,work,burnt,0.5,2,-10
hot,rest,warm,1,0,20
hot,work,burnt,1,3,-10
burnt,rest,burnt,1,0,-10
"""

KINDS = (
    Kind(
        "tables",
        "peakrl.problems.tables.problem:table_problem",
        reader="peakrl.problems.tables.problem:with_file",
        source="peakrl.problems.tables.problem:file_of",
        files=("file",),
        template=Template("tables", TEMPLATE, episodes=20_000, files={".csv": TABLE}),
    ),
)
