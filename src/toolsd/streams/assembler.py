"""One completion from its first chunk to its calls: the entry point of `toolsd.streams`.

Theory of operation. Text goes through a `WireDecoder` and becomes chunks; the first decisive chunk chooses the format
adapter (or the caller named it); the adapter fills drafts; `finish` settles the drafts into calls and adds the
defects. Nothing is decided before `finish`, because finish reasons come early, late, often or never. Nothing that a
provider sends raises: it ends as a defect. A stream beyond its budget is not read further and ends as a defect too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from toolsd.errors import UsageError
from toolsd.streams.arguments import encodable
from toolsd.streams.assembly import Assembly, Step
from toolsd.streams.bounds import StreamBudget
from toolsd.streams.defects import check_ids, disowned, turn_defects
from toolsd.streams.draft import Draft, shortened
from toolsd.streams.formats import FORMATS, Adapter, OpenAIChat, recognise
from toolsd.streams.plain import plain, read
from toolsd.streams.settle import settle
from toolsd.streams.wire import WireDecoder, decode

# What decodes and is no chunk of any format.
_NO_CHUNK = (str, bytes, bytearray, memoryview, int, float, list, tuple)


class CompletionAssembler:
    """Assembles the tool calls of one completion. One per completion.

    `format` is a key of `toolsd.streams.FORMATS`, or "auto". `strict` repairs nothing and routes by the five rules
    alone. `explain` records where every fragment went (`Assembly.steps`); it costs nothing when off. `listen` is called
    with the format and each chunk of it as it is read, for what a completion holds besides calls.

    Raises:
        UsageError: the format is not known.
    """

    def __init__(
        self,
        format: str = "auto",
        *,
        strict: bool = False,
        budget: StreamBudget | None = None,
        explain: bool = False,
        listen: Callable[[str | None, Any], None] | None = None,
    ) -> None:
        if format != "auto" and format not in FORMATS:
            raise UsageError(f"unknown stream format {format!r}", hint=f"one of: auto, {', '.join(FORMATS)}")
        self._strict = strict
        self._budget = budget or StreamBudget()
        self._steps: list[tuple[int, Draft | None, str, str]] | None = [] if explain else None
        self._listen = listen
        self._adapter: Adapter | None = None if format == "auto" else self._make(FORMATS[format])
        self._wire: WireDecoder | None = None
        self._text_pending = False
        self._bytes = 0
        self._chunks = 0
        self._undecodable = 0
        self._failed = False
        self.stopped: str | None = None  # the code of the budget that was exceeded; nothing is read any more

    @property
    def format(self) -> str | None:
        """The format that is being read; None while "auto" has not decided."""
        return None if self._adapter is None else self._adapter.format

    @property
    def is_empty(self) -> bool:
        """Whether no call has begun."""
        return self._adapter is None or not self._adapter.calls

    def feed(self, chunk: Any) -> None:
        """Take what the stream gave: an SDK object, a dict, a list of those, or raw text or bytes cut anywhere.

        Text may be server-sent events, NDJSON, JSONL or a JSON document; which one shows by itself.
        """
        if self.stopped or chunk is None:
            return
        if isinstance(chunk, (str, bytes, bytearray, memoryview)):
            if self._wire is None:
                self._wire = WireDecoder()
            self._text_pending = True
            self._bytes += len(chunk)
            self._take(self._wire.feed(chunk))
        else:
            if self._text_pending:
                self._flush()
            if isinstance(chunk, (list, tuple)):
                for one in chunk:
                    self._chunk(one)
            else:
                self._chunk(chunk)
        self._bound()

    def observe(self, deltas: Iterable[Any] | None) -> None:
        """Take the OpenAI `tool_calls` deltas of one chunk: a list of dicts or SDK objects, an empty list, None.

        Raises:
            UsageError: the stream was read as another format before.
        """
        if self.stopped or not deltas:
            return
        if self._adapter is None:
            self._adapter = self._make(OpenAIChat)
        if not isinstance(self._adapter, OpenAIChat):
            raise UsageError(
                f"observe() takes OpenAI deltas, but this is a stream of {self._adapter.format}: use feed()"
            )
        self._adapter.observe(deltas)
        self._bound()

    def new_names(self) -> tuple[str, ...]:
        """Tool names that became known since this was last asked. A name split over deltas shows its first part."""
        if self._adapter is None or not self._adapter.new_names:
            return ()
        names = tuple(self._adapter.new_names)
        self._adapter.new_names.clear()
        return names

    def fail(self, code: str = "stream_error") -> None:
        """Record that the stream broke off: a transport error, or the code of a watchdog. Reading stops."""
        if self.stopped is None:
            self.stopped = code

    def finish(self, finish_reason: str | None = None) -> Assembly:
        """The calls and what is wrong with them. `finish_reason` is one that the caller learnt elsewhere.

        Can be called again after more was fed; each call settles anew.
        """
        if self._text_pending:
            self._flush()
        adapter = self._adapter or Adapter()
        adapter.finish()
        drafts = adapter.drafts()
        reasons = [*adapter.reasons, *([finish_reason] if finish_reason else [])]
        if disowned(reasons):
            for draft in drafts:
                draft.closed = False
        calls = check_ids(
            settle(draft, index, repair=not self._strict, max_depth=self._budget.depth)
            for index, draft in enumerate(drafts)
        )
        dropped = adapter.dropped + self._undecodable
        defects = turn_defects(
            len(calls),
            reasons,
            dropped=dropped,
            failed=adapter.failed or self._failed,
            finish_expected=self._chunks > 0,
        )
        if self.stopped and self.stopped not in defects:
            defects += (self.stopped,)
        return Assembly(
            calls=tuple(calls),
            defects=defects,
            dropped_deltas=dropped,
            finish_reason=encodable(reasons[-1]) if reasons else None,
            format=self.format,
            steps=self._explained(drafts),
        )

    def _make(self, kind: type[Adapter]) -> Adapter:
        return kind(strict=self._strict, trace=None if self._steps is None else self._trace)

    def _flush(self) -> None:
        if self._wire is not None:
            self._take(self._wire.flush())
        self._text_pending = False

    def _take(self, items: Any) -> None:
        for value, event, undecodable in items:
            if undecodable is not None:
                self._chunks += 1
                self._lose(undecodable)
                continue
            if event and event != "message" and type(value) is dict and "choices" not in value:
                value.setdefault("type", event)
            if isinstance(value, list):
                for one in value:
                    self._chunk(one)
            else:
                self._chunk(value)

    def _chunk(self, chunk: Any) -> None:
        self._chunks += 1
        if not isinstance(chunk, dict):
            chunk = self._read(chunk)
            if chunk is None:
                return
        elif chunk.get("type") == "error":  # the same in every format, and in a body that shows none
            self._failed = True
        if self._adapter is None:
            kind = recognise(chunk)
            if kind is None:
                self._failed = self._failed or bool(read(chunk, "error"))
                return
            self._adapter = self._make(kind)
        self._adapter.feed(chunk)
        if self._listen is not None:
            self._listen(self._adapter.format, chunk)

    def _read(self, thing: Any) -> Any:
        """What an SDK hands out as a chunk: the object itself where its format reads it, or as a dict; None if none."""
        if thing is None:
            return None
        if isinstance(thing, _NO_CHUNK):
            self._lose(thing)
            return None
        if read(thing, "choices") is not None:
            return thing if self._adapter is None or self._adapter.takes_objects else plain(thing)
        text, adapter = read(thing, "data"), self._adapter
        if isinstance(text, str):  # a server-sent event, split off by an HTTP client
            event = read(thing, "event")
            if text.strip() not in ("", "[DONE]"):
                self._chunks -= 1  # it is what it holds
                self._take(decode(text.encode("utf-8", "surrogatepass"), event if isinstance(event, str) else None))
            return None
        if adapter is not None and str(read(thing, "type")) in adapter.repeats:
            return None
        if recognise(thing) is not None or (adapter is not None and adapter.takes_objects):
            return thing
        chunk = plain(thing)
        if not isinstance(chunk, dict):
            self._lose(chunk)
            return None
        return chunk

    def _lose(self, what: Any) -> None:
        self._undecodable += 1
        self._trace(None, shortened(what), "no chunk of any format: dropped and counted")

    def _bound(self) -> None:
        adapter = self._adapter
        if adapter is None:
            self.stopped = self._budget.exceeded(self._bytes, 0)
        else:
            self.stopped = self._budget.exceeded(max(self._bytes, adapter.size), adapter.calls)

    def _trace(self, draft: Draft | None, what: str, why: str) -> None:
        if self._steps is not None:
            self._steps.append((self._chunks - 1, draft, what, why))

    def _explained(self, drafts: list[Draft]) -> tuple[Step, ...]:
        if not self._steps:
            return ()
        numbers = {id(draft): index for index, draft in enumerate(drafts)}
        steps = []
        for chunk, draft, what, why in self._steps:
            whose, end = draft, ""
            if draft is not None and draft.into is not None:
                whose = draft.into
                if draft.id is None and not draft.name:
                    end = "; it never got an id or a name: put back to the call before it"
            steps.append(Step(chunk, numbers.get(id(whose)), encodable(what), encodable(why + end)))
        return tuple(steps)
