"""Log lines: one record is one line, whatever is in it."""

from __future__ import annotations

import logging
import re

import pytest

from toolsd.telemetry import logs


@pytest.fixture(autouse=True)
def unchanged_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("toolsd")
    for name in ("handlers", "propagate", "level"):
        monkeypatch.setattr(logger, name, getattr(logger, name))


@pytest.mark.parametrize(
    ("verbosity", "shown"), [(-3, []), (-1, ["c"]), (0, ["b", "c"]), (1, ["a", "b", "c"]), (5, ["a", "b", "c"])]
)
def test_levels(capsys: pytest.CaptureFixture[str], verbosity: int, shown: list[str]) -> None:
    logs.to_stderr(verbosity)
    logger = logging.getLogger("toolsd.somewhere")
    logger.debug("a")
    logger.info("b")
    logger.warning("c")
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == shown


def test_one_record_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.to_stderr()
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("toolsd").exception("tool said %r and %s", "x", "\x1b[31mred\r\n")
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z error tool said 'x' and \\x1b\[31mred\\x0d\\n ", line)
    assert "ValueError: two\\nlines" in line


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    logs.silent()
    logging.getLogger("toolsd").error("nothing")
    assert capsys.readouterr().err == ""
