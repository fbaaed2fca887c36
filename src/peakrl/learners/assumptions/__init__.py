"""What users declare about a target, and how declarations are checked."""
