"""SafeQ: Q-learning with a memory of constraint violations."""
