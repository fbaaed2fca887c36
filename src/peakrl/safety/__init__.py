"""The safe set of a model, and the shield that keeps an agent in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

__all__ = ["SafeSet", "load_safe_set"]

if TYPE_CHECKING:
    from peakrl.safety.safe_set import SafeSet, load_safe_set

__getattr__, __dir__ = lazy_names(__name__, {"safe_set": ("SafeSet", "load_safe_set")})
