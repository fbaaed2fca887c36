"""Certifying: certificates of policies, and everything else that is computed of a run before it is shown."""

from peakrl.certifying.certify import certify

__all__ = ["certify"]
