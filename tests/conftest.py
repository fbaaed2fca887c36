"""What all tests share."""

# pyjobshop's solver and cvxpy's both carry HiGHS; loaded the other way round, pyjobshop fails with a missing symbol.
import pyjobshop  # noqa: F401
