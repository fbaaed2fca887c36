"""Certificates: making, storing and verifying them."""
