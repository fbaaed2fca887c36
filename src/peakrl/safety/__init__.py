"""The safe set of a model, and the shield that keeps an agent in it."""

from peakrl.safety.safe_set import SafeSet, load_safe_set

__all__ = ["SafeSet", "load_safe_set"]
