"""What a finished completion amounts to: values, and their JSON for the command line. Not how they came."""

from __future__ import annotations

from typing import Any

import msgspec


class Step(msgspec.Struct, frozen=True):
    """One line of an explanation: what fragment of which chunk went where, and by which rule.

    `chunk` counts from 0. `call` is the number of the call in the result, or None where the fragment went to no call.
    """

    chunk: int
    call: int | None
    what: str
    why: str


class AssembledCall(msgspec.Struct, frozen=True):
    """One call of the completion.

    `index` is its place in the result, from 0. `arguments` is the text to hand on: what the model sent, after the
    settlement rules. `parsed` is the object the tool should receive (for a custom tool its free text), or None where
    the arguments, the name or the block are not whole. `defects` are codes that stop the call, `notes` are codes
    (`note:...`) of repairs and oddities that do not. `extra` holds the provider's own keys, to be sent back with it.
    """

    index: int
    id: str | None
    name: str
    arguments: str
    parsed: Any
    defects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    custom: bool = False
    extra: dict[str, Any] = {}

    @property
    def defect(self) -> str | None:
        """The code that stops this call, None if nothing does."""
        return self.defects[0] if self.defects else None


class Assembly(msgspec.Struct, frozen=True):
    """All calls of a completion in order, and what is wrong with the completion as a whole.

    `defects` are turn-level codes: nothing of the turn should run. `format` is the provider format that was read.
    `finish_reason` is the last one reported, in the provider's own word.
    """

    calls: tuple[AssembledCall, ...] = ()
    defects: tuple[str, ...] = ()
    dropped_deltas: int = 0
    finish_reason: str | None = None
    format: str | None = None
    steps: tuple[Step, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """Every defect and note as one list: `code@n` for call n, `code` for the turn."""
        calls = [f"{code}@{call.index}" for call in self.calls for code in (*call.defects, *call.notes)]
        return (*calls, *self.defects)

    def to_json(self) -> dict[str, Any]:
        """The stable JSON form."""
        return {
            "calls": [
                {
                    "index": call.index,
                    "id": call.id,
                    "name": call.name,
                    "arguments": call.arguments,
                    "parsed": call.parsed,
                    "defects": list(call.defects),
                    "notes": list(call.notes),
                }
                for call in self.calls
            ],
            "defects": list(self.defects),
            "dropped_deltas": self.dropped_deltas,
            "finish_reason": self.finish_reason,
        }
