"""Gemini interactions events: steps that start, grow and stop; a call is a step of type `function_call`.

The first generation of the API said `content` where it now says `step`, and put a whole call into one delta.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.streams.draft import Draft, Trace
from toolsd.streams.formats.base import identity, key, mapping, sequence, text
from toolsd.streams.formats.blocks import Blocks

_STEP = frozenset({"type", "id", "name", "arguments"})
_RUNNING = frozenset({"", "in_progress", "queued", "idle"})


class GeminiInteractions(Blocks):
    format: ClassVar[str | None] = "gemini-interactions"

    def __init__(self, *, strict: bool = False, trace: Trace | None = None) -> None:
        super().__init__(strict=strict, trace=trace)
        self._ids: set[str] = set()

    def start(self, index: int, draft: Draft | None) -> None:
        super().start(index, draft)
        if draft is not None and draft.id is not None:
            self._ids.add(draft.id)

    def feed(self, chunk: Any) -> None:
        kind = text(chunk.get("event_type"))
        index = key(chunk.get("index"))
        _, _, phase = kind.partition(".")
        if kind.startswith(("step.", "content.")):
            if phase == "delta":
                self._delta(index, mapping(chunk.get("delta")))
            elif phase == "start":
                step = mapping(chunk.get("step") or chunk.get("content"))
                self.start(index, _call(step) if step.get("type") == "function_call" else None)
            elif phase == "stop":
                self.stop(index)
        elif kind.startswith("interaction"):
            interaction = mapping(chunk.get("interaction"))
            self._snapshot(interaction)
            status = text(interaction.get("status") or chunk.get("status")).lower()
            if status not in _RUNNING:
                self.say(status)
        elif kind == "error" or "error" in chunk:
            self.failed = True

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = text(delta.get("type"))
        if kind == "function_call":
            draft = self._bound.get(index)
            if draft is None:
                self.start(index, _call(delta))
                return
            if draft.id is None:
                draft.id = identity(delta.get("id"))
                self._ids.update([draft.id] if draft.id else [])
            if not draft.name and text(delta.get("name")):
                draft.name = text(delta.get("name"))
                self.new_names.append(draft.name)
            self.grow(index, delta.get("arguments"))
        elif kind == "arguments_delta" or (not kind and "arguments" in delta):
            self.grow(index, delta.get("arguments"))

    def _snapshot(self, interaction: dict[str, Any]) -> None:
        """Calls that only the finished interaction shows."""
        for index, step in enumerate(sequence(interaction.get("steps") or interaction.get("outputs"))):
            if isinstance(step, dict) and step.get("type") == "function_call":
                id_ = identity(step.get("id"))
                if id_ is None or id_ not in self._ids:
                    self.start(index, _call(step))
                    self.stop(index)


def _call(step: dict[str, Any]) -> Draft:
    draft = Draft(identity(step.get("id")), text(step.get("name")))
    given = step.get("arguments")
    draft.fallback = given if isinstance(given, (str, dict)) else None
    for name, value in step.items():
        if name not in _STEP and value:
            draft.keep(name, value)
    return draft
