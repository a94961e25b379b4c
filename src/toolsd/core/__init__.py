"""The decisions: events in, instructions out. No socket, process, clock, randomness or log."""
