"""Numba kernels: arrays in, arrays out. Nothing here imports anything else of peakrl."""
