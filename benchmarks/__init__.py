"""How fast peakrl is on this machine, against straightforward C where a compiler is found: `python -m benchmarks`."""
