"""Errors that users can cause.

Each is a :class:`PeakError` and names the value that is wrong, where it is, and what would be right.
"""

from typing import Any


class PeakError(Exception):
    """Base class of every error that peakrl raises on purpose."""


class ProblemError(PeakError, ValueError):
    """A problem or a model is not well formed."""


class TrustError(ProblemError):
    """A file names code that its user has not permitted to run."""


class SettingsError(PeakError, ValueError):
    """An argument or a learner's setting is out of range."""


class PolicyError(PeakError, ValueError):
    """A policy does not fit the model, the step or the state."""


class UnknownStateError(PolicyError):
    """A policy was queried for a state that it does not know."""


class StorageError(PeakError, OSError):
    """A file is missing, damaged, foreign or of another version, or cannot be written."""

    #: The `LearningRun`, if a finished run could not be saved; else None.
    run: Any = None


class TargetError(PeakError, RuntimeError):
    """A Gymnasium environment violated what learning relies on, or raised an error."""

    #: The `LearningRun` so far; None if no episode was complete.
    run: Any = None


class LearnerError(PeakError, RuntimeError):
    """A user's learner lacks a method, raised an error, or chose an action that is not available."""

    #: The `LearningRun` so far; None if no episode was complete.
    run: Any = None


class SweepError(PeakError, RuntimeError):
    """A sweep is not well formed, or some of its runs failed."""
