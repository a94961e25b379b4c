"""One MCP server over stdio with the bench's tool: `python -m benchlib.mcp_server NAME`."""

from __future__ import annotations

import sys
from typing import Any

from mcp.server.mcpserver import MCPServer

from benchlib import work


def main(name: str) -> None:
    server = MCPServer(name, log_level="WARNING")

    @server.tool(name=f"{name}_repeat")
    def repeat(text: str, times: int) -> dict[str, Any]:
        """Repeat a line of text and count the words."""
        return work.repeat(text, times)

    server.run("stdio")


if __name__ == "__main__":
    main(sys.argv[1])
