"""Sources written in Python."""
