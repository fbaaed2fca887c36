"""Gymnasium environments as a learner's target.

* `spaces`: observations and actions as labels; `constraints`: where an environment tells of them.
* `single`, `vector`: an environment, or several that are stepped together, behind one small interface (`adapters`).

Nothing of Gymnasium is imported until it is needed.
"""
