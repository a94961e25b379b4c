"""Bedrock ConverseStream events, as botocore decodes them (a dict with one key that names the event).

Text blocks have no start event, tool blocks do, so every event's own `contentBlockIndex` counts. Exceptions in the
stream are terminal.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.streams.draft import Draft
from toolsd.streams.formats.base import identity, key, mapping, sequence, text
from toolsd.streams.formats.blocks import Blocks

EVENTS = frozenset({"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop"})


class Bedrock(Blocks):
    format: ClassVar[str | None] = "bedrock"

    def feed(self, chunk: Any) -> None:
        kind = text(chunk.get("type"))
        if kind in EVENTS and kind not in chunk:  # over HTTP the event's name stands beside it
            chunk = {kind: chunk}
        for name, body in chunk.items():
            if not isinstance(name, str):
                continue
            if name in EVENTS:
                self._event(name, mapping(body))
            elif name.endswith("Exception"):
                self.failed = True
            elif name == "output":
                self._whole(mapping(mapping(body).get("message")))
            elif name == "stopReason":
                self.say(body)

    def _event(self, name: str, body: dict[str, Any]) -> None:
        index = key(body.get("contentBlockIndex"))
        if name == "contentBlockDelta":
            use = mapping(body.get("delta")).get("toolUse")
            if isinstance(use, dict):
                self.grow(index, use.get("input"))
        elif name == "contentBlockStart":
            use = mapping(body.get("start")).get("toolUse")
            self.start(index, _call(use) if isinstance(use, dict) else None)
        elif name == "contentBlockStop":
            self.stop(index)
        elif name == "messageStop":
            self.say(body.get("stopReason"))

    def _whole(self, message: dict[str, Any]) -> None:
        """The message of a Converse answer that was not streamed."""
        for index, block in enumerate(sequence(message.get("content"))):
            use = mapping(block).get("toolUse")
            if isinstance(use, dict):
                self.start(index, _call(use))
                self.grow(index, use.get("input"))
                self.stop(index)


def _call(use: dict[str, Any]) -> Draft | None:
    if use.get("type") == "server_tool_use":
        return None
    return Draft(identity(use.get("toolUseId")), text(use.get("name")))
