"""Learning from experience: settings, runs, checkpoints."""
