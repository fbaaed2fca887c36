"""The version of peakrl."""

__version__ = "0.3.0"
