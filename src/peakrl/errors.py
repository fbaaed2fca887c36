"""Every error that a user can cause.

Each is a :class:`PeakError` and says which value is at fault, where it stands, and what would be right.
"""

from typing import Any


class PeakError(Exception):
    """Base class of every error that peakrl raises on purpose."""


class ProblemError(PeakError, ValueError):
    """A problem or a model is not well formed."""


class TrustError(ProblemError):
    """A file names code, and its user has not said that it may be run."""

    #: Is all of it in the file's own folder, so that the user can be asked?
    may_ask: bool = False


class SettingsError(PeakError, ValueError):
    """An argument or a learner's setting is out of range."""


class PolicyError(PeakError, ValueError):
    """A policy does not fit the model, the step or the state it is asked about."""


class UnknownStateError(PolicyError):
    """A policy is asked about a state of which it knows nothing."""


class StorageError(PeakError, OSError):
    """A file is missing, damaged, foreign or of another version, or cannot be written."""

    #: What had been learned, a `LearningRun`, where a run was over and could not be saved; None otherwise.
    run: Any = None


class TargetError(PeakError, RuntimeError):
    """A Gymnasium environment broke the rules that learning relies on, or raised an error of its own."""

    #: What had been learned by then, a `LearningRun`; None where not one episode was complete.
    run: Any = None


class LearnerError(PeakError, RuntimeError):
    """A learner of one's own lacks a method, raised an error, or chose an action that is not on offer."""

    #: What had been learned by then, a `LearningRun`; None where not one episode was complete.
    run: Any = None


class SweepError(PeakError, RuntimeError):
    """A sweep is ill described, or some of its runs failed."""
