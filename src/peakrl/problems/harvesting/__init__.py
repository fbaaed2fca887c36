"""A transmitter that lives on harvested energy."""
