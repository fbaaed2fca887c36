"""The certified learner: it stops by itself, with a certificate (theorem and proof: docs/certified-learning.md)."""
