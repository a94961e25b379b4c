"""What a client gives besides results: a report of a running call, a tool that can be called.

Owns these values. Must not know links or turns.
"""

from __future__ import annotations

from typing import Any

import msgspec

from toolsd.content import LogRecord, Output, Progress
from toolsd.errors import PeerProtocolError


class CallReport(msgspec.Struct, frozen=True):
    """Something a running call reported: how far it is, a line of log, or a piece of output."""

    index: int
    id: str | None
    tool: str
    report: Progress | LogRecord | Output


class Tool(msgspec.Struct, frozen=True):
    """A tool that can be called. `parameters` is the JSON schema of its arguments, an object.

    `sandbox` is the tier that confines its source, `none` if nothing does.
    """

    name: str
    source: str
    description: str = ""
    parameters: dict[str, Any] = {}
    idempotent: bool = False
    timeout: float | None = None
    sandbox: str = "none"


def tools_of(body: Any) -> list[Tool]:
    """The tools in the coordinator's answer. Raises PeerProtocolError."""
    try:
        return msgspec.convert(body, list[Tool])
    except msgspec.ValidationError as error:
        raise PeerProtocolError(f"the list of tools does not fit: {error}") from error
