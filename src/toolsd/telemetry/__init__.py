"""What the daemon tells its operator while it runs. `logs`: the standard library's logging, to stderr."""
