"""Memory of a message that streams as numbered blocks, as with Anthropic and Bedrock."""

from __future__ import annotations

from typing import Any

from toolsd.conversation.said import CALL, Said


class SaidBlocks(Said):
    def __init__(self) -> None:
        self._blocks: list[tuple[int, Any]] = []
        self._open: dict[int, Any] = {}

    def begin(self, index: int, block: Any) -> None:
        """A block starts at `index`: what is to be kept of it, or `CALL`."""
        self._open[index] = block
        self._blocks.append((index, block))

    def at(self, index: int) -> Any:
        """The block that is open at `index`, None if there is none."""
        return self._open.get(index)

    def parts(self) -> list[Any]:
        found = []
        for _, block in sorted(self._blocks, key=lambda entry: entry[0]):
            kept = block if block is CALL else self.kept(block)
            if kept is not None:
                found.append(kept)
        return found

    def kept(self, block: Any) -> Any:
        """A block as it goes back; None if it cannot."""
        return block
