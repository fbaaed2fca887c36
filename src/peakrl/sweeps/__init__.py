"""A sweep: a grid of runs described in one file, made by `peakrl.runs`, and summed up honestly."""
