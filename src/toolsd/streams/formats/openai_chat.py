"""OpenAI Chat Completions chunks, and everything that imitates them (Mistral, Groq, vLLM, llama.cpp, gateways).

Envelope only: which deltas a chunk holds and for which choice. Routing of deltas to calls is the accumulator's.
`delta: null`, `tool_calls: null`, a choice without a delta, a chunk of nothing but usage are nothing. Finish reasons
are kept and never acted on: fragments may follow them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.streams.draft import Draft
from toolsd.streams.formats.base import Adapter, Trace
from toolsd.streams.plain import read
from toolsd.streams.strict import ToolCallAccumulator


class OpenAIChat(Adapter):
    format: ClassVar[str | None] = "openai-chat"
    takes_objects = True

    def __init__(self, *, strict: bool = False, trace: Trace | None = None) -> None:
        super().__init__(strict=strict, trace=trace)
        self._choices: dict[int, _Choice] = {}

    def feed(self, chunk: Any) -> None:
        choices = read(chunk, "choices")
        if choices is None:
            inner = read(chunk, "data")  # mistralai wraps each chunk in an event
            choices = None if inner is None else read(inner, "choices")
        if read(chunk, "error") or read(chunk, "object") == "error":
            self.failed = True
        if not isinstance(choices, (list, tuple)):
            return
        for position, choice in enumerate(choices):
            index = read(choice, "index")
            state = self.choice(index if type(index) is int else position)
            delta = read(choice, "delta")
            if delta is not None:
                self.observe(read(delta, "tool_calls"), state)
                legacy = read(delta, "function_call")
                if legacy:
                    state.observe_legacy(legacy)
            reason = read(choice, "finish_reason")
            if reason and isinstance(reason, str) and reason not in state.reasons:
                state.reasons.append(reason)

    def choice(self, index: int = 0) -> _Choice:
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = _Choice()
        return state

    def observe(self, deltas: Any, state: _Choice | None = None) -> None:
        """Fold `tool_calls` deltas into the choice `state`, the first one by default."""
        if not deltas:
            return
        accumulator = (state or self.choice()).accumulator
        size, dropped, calls = accumulator.size, accumulator.dropped_deltas, len(accumulator)
        accumulator.observe(deltas)
        self.size += accumulator.size - size
        self.dropped += accumulator.dropped_deltas - dropped
        self.calls += len(accumulator) - calls
        if accumulator.new_names:
            self.new_names += accumulator.new_names
            accumulator.new_names.clear()

    def finish(self) -> None:
        if self._choices:
            self.reasons = self._first().reasons

    def drafts(self) -> list[Draft]:
        """The calls of the choice with the lowest index; with `n` > 1 the others are other completions."""
        if not self._choices:
            return []
        state = self._first()
        return state.accumulator.drafts() or state.legacy_drafts()

    def _first(self) -> _Choice:
        return self._choices[min(self._choices)]


class _Choice:
    __slots__ = ("accumulator", "legacy", "reasons")

    def __init__(self) -> None:
        self.accumulator = ToolCallAccumulator()
        self.legacy: ToolCallAccumulator | None = None
        self.reasons: list[str] = []

    def observe_legacy(self, function_call: Any) -> None:
        if self.legacy is None:
            self.legacy = ToolCallAccumulator()
        self.legacy.observe([{"function": function_call}])

    def legacy_drafts(self) -> list[Draft]:
        """The one call of the older protocol, which knows no ids."""
        drafts = [] if self.legacy is None else self.legacy.drafts()
        for draft in drafts:
            draft.needs_id = False
        return drafts
