"""MCP: tools as a server lists them. Results go back as answers to requests, so there are no messages."""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.conversation.formats.base import Format
from toolsd.conversation.names import NameRule
from toolsd.conversation.schemas import Schema


class Mcp(Format):
    name: ClassVar[str] = "mcp"
    # Specification of 2025-11-25, "Tool Names".
    names: ClassVar[NameRule] = NameRule("a-zA-Z0-9_.-", "a-zA-Z0-9_.-", 128)

    def declare(self, name: str, description: str, schema: Schema) -> dict[str, Any]:
        return {"name": name, "description": description, "inputSchema": schema}
