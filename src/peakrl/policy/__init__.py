"""Policies: tables by step and state, mixtures of them, and their files."""
