"""toolsd: runs a model's streamed tool calls, one batch per source, each source in its own worker process."""

__version__ = "0.1.0"
