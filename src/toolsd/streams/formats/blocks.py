"""What Anthropic, Bedrock, Cohere and the Gemini interactions share: calls as blocks that start, grow and stop.

The index of a block is its key and its place, nothing else: text and server tools have indices too. A start event
rebinds its index. A block that never stopped may have lost its end, whatever its arguments look like.
"""

from __future__ import annotations

from typing import Any

from toolsd.streams.draft import Draft, Trace
from toolsd.streams.formats.base import Adapter


class Blocks(Adapter):
    def __init__(self, *, strict: bool = False, trace: Trace | None = None) -> None:
        super().__init__(strict=strict, trace=trace)
        self._bound: dict[int, Draft | None] = {}  # None: a block that is no call of the client
        self._drafts: list[tuple[int, Draft]] = []
        self._last = -1

    def drafts(self) -> list[Draft]:
        return [draft for _, draft in sorted(self._drafts, key=lambda entry: entry[0])]

    def start(self, index: int, draft: Draft | None) -> None:
        """A block begins at `index`: a call, or something that is none."""
        self._bound[index] = draft
        self._last = index
        if draft is not None:
            draft.closed = False
            self._drafts.append((index, draft))
            self.open(draft, f"block {index} starts")

    def grow(self, index: int, fragment: Any) -> None:
        """Arguments for the block at `index`, or for the block started last where a relay lost the index."""
        index = self._last if index < 0 else index
        draft = self._bound.get(index)
        if draft is not None:
            self.append(draft, fragment, f"block {index}")
        elif index not in self._bound and fragment:
            self.drop(fragment, f"block {index} was never started")

    def stop(self, index: int) -> None:
        """The block at `index` is whole."""
        draft = self._bound.get(self._last if index < 0 else index)
        if draft is not None:
            draft.closed = True
