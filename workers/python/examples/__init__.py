"""Sources to read, run and start from: a file searcher and a notebook. `toolsd.toml` serves both."""
