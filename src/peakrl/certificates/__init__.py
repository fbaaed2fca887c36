"""Certificates: what one says, the bounds it may rest on, its file, and the check of a file by other means.

Nothing here knows models, policies or learners: `peakrl.certifying` makes certificates of them.
"""

from peakrl.certificates.certificate import Certificate, Evidence
from peakrl.certificates.verify import verify

__all__ = ["Certificate", "Evidence", "verify"]
