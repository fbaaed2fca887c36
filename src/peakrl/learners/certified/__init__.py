"""The certified learner: it stops by itself with a proof."""
