"""What `scripts/bench` runs: one module a contender, one a group of figures. No timed test: every goal is a ratio."""
