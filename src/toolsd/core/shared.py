"""What the parts of the machine share while they work on one event: the instructions so far, alarms and counts.

Owns nothing else; in particular no turn and no worker.
"""

from __future__ import annotations

from toolsd.core.alarms import Alarms
from toolsd.core.instructions import Instruction
from toolsd.core.instructions import Note as NoteInstruction


class Shared:
    """`emit` appends an instruction to what the current event leads to."""

    __slots__ = (
        "_instructions",
        "alarms",
        "batches_sent",
        "emit",
        "failures",
        "retries",
        "stale",
        "turns_failed",
        "turns_finished",
        "turns_opened",
    )

    def __init__(self) -> None:
        self._instructions: list[Instruction] = []
        self.emit = self._instructions.append
        self.alarms = Alarms()
        self.stale = 0
        self.turns_opened = 0
        self.turns_finished = 0
        self.turns_failed = 0
        self.batches_sent = 0
        self.retries = 0
        self.failures: dict[str, int] = {}

    def take(self) -> list[Instruction]:
        """The instructions since the last time, in order."""
        taken = self._instructions[:]
        self._instructions.clear()
        return taken

    def warn(self, message: str, **fields: object) -> None:
        """Tell the operator of something that went wrong."""
        self.emit(NoteInstruction("warning", message, tuple(fields.items())))

    def inform(self, message: str, **fields: object) -> None:
        """Tell the operator of something that is as it should be."""
        self.emit(NoteInstruction("info", message, tuple(fields.items())))

    def count_failure(self, code: str) -> None:
        self.turns_failed += 1
        self.failures[code] = self.failures.get(code, 0) + 1
