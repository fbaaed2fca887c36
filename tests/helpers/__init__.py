"""What tests share: random problems, small environments, runs and pages."""
