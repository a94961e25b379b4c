"""OpenAI Chat Completions chunks, and everything that imitates them (Mistral, Groq, vLLM, llama.cpp, gateways).

Envelope only: which deltas a chunk holds and for which choice. Routing of deltas to calls is the accumulator's.
`delta: null`, `tool_calls: null`, a choice without a delta, a chunk of nothing but usage are nothing. Finish reasons
are kept and never acted on: fragments may follow them. With `n` > 1 the choices are other completions of the same
prompt; the one with the lowest index is the result.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.streams.draft import Draft, Trace
from toolsd.streams.formats.base import Adapter, mapping
from toolsd.streams.plain import plain, read
from toolsd.streams.strict import ToolCallAccumulator
from toolsd.streams.tolerant import TolerantAccumulator


class OpenAIChat(Adapter):
    format: ClassVar[str | None] = "openai-chat"
    takes_objects = True

    def __init__(self, *, strict: bool = False, trace: Trace | None = None) -> None:
        super().__init__(strict=strict, trace=trace)
        self._choices: dict[int, _Choice] = {}

    def feed(self, chunk: Any) -> None:
        choices = read(chunk, "choices")
        if choices is None:
            inner = read(chunk, "data") or read(chunk, "chunk")  # events of mistralai, of openai's stream helper
            choices = None if inner is None else read(inner, "choices")
        # Objects of the SDKs are slow to say that they have no such attribute, and their clients raise on errors.
        if (not choices or isinstance(chunk, dict)) and (read(chunk, "error") or read(chunk, "object") == "error"):
            self.failed = True
        if not isinstance(choices, (list, tuple)):
            return
        for position, choice in enumerate(choices):
            index = read(choice, "index")
            state = self._choice(index if type(index) is int else position)
            delta = read(choice, "delta")
            if delta is not None:
                deltas = read(delta, "tool_calls")
                if deltas:
                    self._fold(state.calls, deltas)
                legacy = read(delta, "function_call")
                if legacy:
                    if state.legacy is None:
                        state.legacy = self._accumulator()
                    self._fold(state.legacy, [{"function": legacy}])
            elif read(choice, "message") is not None:
                self._whole(state, read(choice, "message"))
            reason = read(choice, "finish_reason")
            if reason:
                self.say(reason, state.reasons)

    def observe(self, deltas: Any) -> None:
        """Fold `tool_calls` deltas without their chunk."""
        self._fold(self._choice(0).calls, deltas)

    def finish(self) -> None:
        if self._choices:
            self.reasons = self._first().reasons

    def drafts(self) -> list[Draft]:
        if not self._choices:
            return []
        state = self._first()
        drafts = state.calls.drafts()
        if not drafts and state.legacy is not None:  # gateways that send both say the same twice
            drafts = state.legacy.drafts()
            for draft in drafts:
                draft.needs_id = False  # the older protocol has one call and no ids
        return drafts

    def _fold(self, accumulator: ToolCallAccumulator | TolerantAccumulator, deltas: Any) -> None:
        size, dropped, calls = accumulator.size, accumulator.dropped_deltas, len(accumulator)
        accumulator.observe(deltas)
        self.size += accumulator.size - size
        self.dropped += accumulator.dropped_deltas - dropped
        self.calls += len(accumulator) - calls
        if accumulator.new_names:
            self.new_names += accumulator.new_names
            accumulator.new_names.clear()

    def _whole(self, state: _Choice, message: Any) -> None:
        """The message of an answer that was not streamed after all: whole calls, whose place is their index."""
        calls = plain(read(message, "tool_calls"))
        if isinstance(calls, list) and state.calls.is_empty:
            self._fold(state.calls, [{"index": place, **mapping(plain(call))} for place, call in enumerate(calls)])
        legacy = plain(read(message, "function_call"))
        if legacy and state.legacy is None:
            state.legacy = self._accumulator()
            self._fold(state.legacy, [{"function": legacy}])

    def _choice(self, index: int) -> _Choice:
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = _Choice(self._accumulator())
        return state

    def _first(self) -> _Choice:
        return self._choices[min(self._choices)]

    def _accumulator(self) -> ToolCallAccumulator | TolerantAccumulator:
        return ToolCallAccumulator(self.trace) if self.strict else TolerantAccumulator(self.trace)


class _Choice:
    __slots__ = ("calls", "legacy", "reasons")

    def __init__(self, calls: ToolCallAccumulator | TolerantAccumulator) -> None:
        self.calls = calls
        self.legacy: ToolCallAccumulator | TolerantAccumulator | None = None
        self.reasons: dict[str, None] = {}
