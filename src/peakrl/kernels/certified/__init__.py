"""The certified learner: bounds by betting, upper values, candidates and gaps (formulas: in each module)."""
