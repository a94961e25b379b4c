"""One folder per kind of source, each a Host and nothing more."""
