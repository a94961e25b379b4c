"""Log lines: one record, one line, to stderr, in a form that reads well and greps well.

Owns the format and the levels. Whoever logs uses `logging.getLogger("toolsd...")`; nothing else of toolsd configures
logging, so a program that embeds it keeps its own.
"""

from __future__ import annotations

import logging
import re
import sys
import time

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z warning message`; a line break or a control character in it is made visible."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        parts = [f"{clock}.{int(record.msecs):03d}Z", record.levelname.lower(), _visible(record.getMessage())]
        if record.exc_info:
            parts.append(_visible(self.formatException(record.exc_info)))
        return " ".join(parts)


_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


def to_stderr(verbosity: int = 0) -> None:
    """Send toolsd's log records to stderr: from INFO up; a step more or less for each unit of `verbosity`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logger = logging.getLogger("toolsd")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(_LEVELS[max(0, min(2 + verbosity, 3))])


def silent() -> None:
    """Drop toolsd's log records."""
    logger = logging.getLogger("toolsd")
    logger.handlers[:] = [logging.NullHandler()]
    logger.propagate = False


def _visible(text: str) -> str:
    return _CONTROL.sub(lambda found: {"\n": "\\n", "\t": "\\t"}.get(found[0], f"\\x{ord(found[0]):02x}"), text)
