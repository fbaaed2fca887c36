"""The safe set of a model, and the shield that keeps an agent in it."""
