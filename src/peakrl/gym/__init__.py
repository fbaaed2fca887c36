"""Gymnasium environments as targets of `learn`, and problems as Gymnasium environments."""
