"""What changes a problem, a model or an environment before it is solved or learned."""
