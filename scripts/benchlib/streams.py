"""Assembling: what one delta costs, at any size of a stream, beside openai-python, anthropic, langchain-core, litellm.

Each program gets the same deltas, made before the clock starts in the shape it takes them. The peers copy what they
have with every chunk, so their cost a delta grows with the stream; they get the typical stream and a short part of
the long ones, and toolsd is held against them on exactly that.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchlib.figures import Figure
from toolsd.streams import TolerantAccumulator, ToolCallAccumulator

if TYPE_CHECKING:
    from benchlib.__main__ import Effort

Delta = dict[str, Any]
Build = Callable[[list[Delta]], Callable[[], object]]
_OPENING = '{"text": "'
_ARGUMENTS = '{"path": "src/toolsd", "pattern": "def assemble", "limit": 20, "context": [2, 2]}'


def typical() -> list[Delta]:
    """Four calls one after the other, arguments in fragments of four characters."""
    deltas: list[Delta] = []
    for index in range(4):
        deltas.append(_first(index))
        deltas += [_more(index, _ARGUMENTS[at : at + 4]) for at in range(0, len(_ARGUMENTS), 4)]
    return deltas


def one_slot(fragments: int) -> list[Delta]:
    """One call whose arguments, one long text, come in `fragments` fragments."""
    return [_first(0), _more(0, _OPENING), *(_more(0, "abcd") for _ in range(fragments - 1))]


def interleaved(slots: int, each: int) -> list[Delta]:
    """`slots` calls, their fragments in turn."""
    return [_first(index) for index in range(slots)] + [
        _more(index, "abcd" if n else _OPENING) for n in range(each) for index in range(slots)
    ]


def _first(index: int) -> Delta:
    function = {"name": "search_files", "arguments": ""}
    return {"index": index, "id": f"call_{index:024d}", "type": "function", "function": function}


def _more(index: int, fragment: str) -> Delta:
    return {"index": index, "function": {"arguments": fragment}}


def _toolsd(kind: type[ToolCallAccumulator] | type[TolerantAccumulator]) -> Build:
    def build(deltas: list[Delta]) -> Callable[[], object]:
        chunks = [[delta] for delta in deltas]

        def run() -> object:
            accumulator = kind()
            observe = accumulator.observe
            for chunk in chunks:
                observe(chunk)
            return accumulator.assembled()

        return run

    return build


def _openai(deltas: list[Delta]) -> Callable[[], object]:
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletionChunk

    def chunk(delta: Delta, role: str | None = None) -> ChatCompletionChunk:
        choice = {"index": 0, "delta": {"role": role, "tool_calls": [delta]}, "finish_reason": None}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return ChatCompletionChunk.model_validate({**head, "choices": [choice]})

    chunks = [chunk(delta, "assistant" if n == 0 else None) for n, delta in enumerate(deltas)]

    def run() -> object:
        state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()
        for one in chunks:
            state.handle_chunk(one)
        return state.current_completion_snapshot

    return run


def _langchain(deltas: list[Delta]) -> Callable[[], object]:
    from langchain_core.messages import AIMessageChunk
    from langchain_core.messages.tool import tool_call_chunk

    def chunk(delta: Delta) -> AIMessageChunk:
        function = delta["function"]
        one = tool_call_chunk(
            name=function.get("name"), args=function["arguments"], id=delta.get("id"), index=delta["index"]
        )
        return AIMessageChunk(content="", tool_call_chunks=[one])

    chunks = [chunk(delta) for delta in deltas]

    def run() -> object:
        total = chunks[0]
        for one in chunks[1:]:
            total = total + one
        return total.tool_calls

    return run


def _anthropic(deltas: list[Delta]) -> Callable[[], object]:
    from anthropic.lib.streaming._messages import accumulate_event
    from anthropic.types import RawContentBlockDeltaEvent, RawContentBlockStartEvent, RawMessageStartEvent

    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    usage = {"usage": {"input_tokens": 1, "output_tokens": 1}}
    events: list[Any] = [
        RawMessageStartEvent.model_validate({"type": "message_start", "message": {**message, **usage}})
    ]
    for delta in deltas:
        function, index = delta["function"], delta["index"]
        if "id" in delta:
            block = {"type": "tool_use", "id": delta["id"], "name": function["name"], "input": {}}
            begun = {"type": "content_block_start", "index": index, "content_block": block}
            events.append(RawContentBlockStartEvent.model_validate(begun))
        else:
            piece = {"type": "input_json_delta", "partial_json": function["arguments"]}
            more = {"type": "content_block_delta", "index": index, "delta": piece}
            events.append(RawContentBlockDeltaEvent.model_validate(more))

    def run() -> object:
        snapshot = None
        bufs: dict[int, bytes] = {}
        for event in events:
            snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=bufs)
        return snapshot

    return run


def _litellm(deltas: list[Delta]) -> Callable[[], object]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks the network for prices otherwise
    import litellm
    from litellm.types.utils import ModelResponseStream

    litellm.suppress_debug_info = True

    def chunk(delta: Delta) -> ModelResponseStream:
        choice = {"index": 0, "delta": {"role": "assistant", "tool_calls": [delta]}, "finish_reason": None}
        return ModelResponseStream(id="chatcmpl-1", created=1, model="gpt-4o", choices=[choice])

    chunks = [chunk(delta) for delta in deltas]
    return lambda: litellm.stream_chunk_builder(chunks)


def _per_delta(programs: dict[str, Callable[[], object]], deltas: int, rounds: int, seconds: float) -> dict[str, float]:
    """Seconds a delta of each program, the median of rounds that alternate between them."""
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, run in programs.items():
            begin = time.perf_counter()
            runs = 0
            while runs == 0 or time.perf_counter() - begin < seconds:
                run()
                runs += 1
            taken[name].append((time.perf_counter() - begin) / runs / deltas)
    return {name: statistics.median(values) for name, values in taken.items()}


_TOOLSD = {"strict": (_toolsd(ToolCallAccumulator), 2e-6), "tolerant": (_toolsd(TolerantAccumulator), 4e-6)}
_PEERS = {
    "openai-python": (_openai, 1 / 40),
    "anthropic": (_anthropic, None),
    "langchain-core": (_langchain, None),
    "litellm": (_litellm, None),
}


def figures(effort: Effort) -> list[Figure]:
    rounds = max(3, effort.rounds // 2)
    usual = typical()
    shapes: list[tuple[str, list[Delta], list[Delta]]] = [
        ("4 calls, typical", usual, usual),
        (f"1 call, {effort.fragments:,} deltas", one_slot(effort.fragments), one_slot(1_000)),
        ("10,000 calls interleaved", interleaved(10_000, effort.fragments // 20_000), interleaved(100, 9)),
    ]
    builders = {name: build for name, (build, _) in (_TOOLSD | _PEERS).items()}
    made: list[Figure] = []
    for shape, whole, short in shapes:
        taken = _per_delta({name: builders[name](whole) for name in _TOOLSD}, len(whole), rounds, effort.seconds)
        compared = _per_delta(
            {name: build(short) for name, build in builders.items()}, len(short), rounds, effort.seconds
        )
        for name, (_, bound) in _TOOLSD.items():
            figure = Figure(f"assembling, {name}, per delta: {shape}", taken[name], "s", bound)
            for peer, (_, goal) in _PEERS.items():
                beside = peer if short is whole else f"{peer}, {len(short):,} deltas"
                figure.beside(beside, compared[peer], at_most=goal, own=compared[name])
            made.append(figure)
    return made
