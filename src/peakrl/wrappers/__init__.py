"""What changes a problem, a model or an environment before it is solved or learned."""

from peakrl.wrappers import tables as tables  # registers [[budget]] and [[monitor]]
