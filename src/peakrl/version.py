"""The version of peakrl."""

__version__ = "0.2.0"
