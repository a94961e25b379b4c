"""Gemini generateContent chunks, from the Gemini API or Vertex.

Every `functionCall` part is a call of its own, unless `willContinue` said that the call goes on: then parts without a
name add to it, as leaves under JSON paths, until a part that does not continue. Ids are optional in this protocol.
Thought signatures are kept: the next request must carry them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.streams.draft import Draft, Trace
from toolsd.streams.formats.base import Adapter, identity, mapping, sequence, text
from toolsd.streams.formats.partial_args import PartialArgs


class Gemini(Adapter):
    format: ClassVar[str | None] = "gemini"

    def __init__(self, *, strict: bool = False, trace: Trace | None = None) -> None:
        super().__init__(strict=strict, trace=trace)
        self._candidates: dict[int, _Candidate] = {}

    def feed(self, chunk: Any) -> None:
        if isinstance(chunk.get("response"), dict):  # the Code Assist API wraps each chunk
            chunk = chunk["response"]
        if chunk.get("error"):
            self.failed = True
        feedback = mapping(_get(chunk, "promptFeedback"))
        blocked = bool(_get(feedback, "blockReason"))
        for candidate in sequence(chunk.get("candidates")):
            if isinstance(candidate, dict):
                self._candidate(candidate)
        if blocked:
            self.say("content_filter", self._choice(0).reasons)

    def finish(self) -> None:
        if self._candidates:
            self.reasons = self._first().reasons

    def drafts(self) -> list[Draft]:
        """The calls of the candidate with the lowest index; the others are other completions."""
        return [call.settled() for call in self._first().calls] if self._candidates else []

    def _first(self) -> _Candidate:
        return self._candidates[min(self._candidates)]

    def _choice(self, index: int) -> _Candidate:
        return self._candidates.setdefault(index, _Candidate())

    def _candidate(self, candidate: dict[str, Any]) -> None:
        index = candidate.get("index")
        state = self._choice(index if type(index) is int else 0)
        for part in sequence(mapping(candidate.get("content")).get("parts")):
            call = _get(mapping(part), "functionCall")
            if isinstance(call, dict):
                self._part(state, call, part)
        reason = text(_get(candidate, "finishReason"))
        if reason and reason != "FINISH_REASON_UNSPECIFIED":
            self.say(reason, state.reasons)

    def _part(self, state: _Candidate, part: dict[str, Any], outer: dict[str, Any]) -> None:
        id_, name = identity(part.get("id")), text(part.get("name"))
        args, leaves = part.get("args"), _get(part, "partialArgs")
        call = state.continued(id_, name, args, leaves)
        if call is None:
            if not (name or id_ or args):
                if leaves:
                    self.drop(leaves, "partial arguments of no call")
                return
            call = _Call(id_, name)
            state.calls.append(call)
            if id_ is not None:
                state.by_id[id_] = call
            self.open(call, "a functionCall part")
        if isinstance(args, dict) and (args or leaves is None):
            call.tree().base(args)
            self.size += len(args)
            self._explain(call, args)
        elif args is not None and not isinstance(args, dict):
            self.append(call, args, "a functionCall part")
        for leaf in sequence(leaves):
            length = call.tree().add(leaf) if isinstance(leaf, dict) else None
            if length is None:
                self.drop(leaf, "a partial argument without a usable path")
            else:
                self.size += length
                self._explain(call, leaf)
        signature = _get(outer, "thoughtSignature")
        if signature:
            call.keep("thoughtSignature", signature)
        call.closed = not _get(part, "willContinue")
        state.current = None if call.closed else call

    def _explain(self, call: _Call, what: Any) -> None:
        if self.trace is not None:
            self.trace(call, f"arguments {what!r:.60}", "the functionCall that is open")


class _Candidate:
    __slots__ = ("by_id", "calls", "current", "reasons")

    def __init__(self) -> None:
        self.by_id: dict[str, _Call] = {}
        self.calls: list[_Call] = []
        self.current: _Call | None = None
        self.reasons: dict[str, None] = {}

    def continued(self, id_: str | None, name: str, args: Any, leaves: Any) -> _Call | None:
        """The call that a part goes on with; None if it is a call of its own."""
        call = self.current
        if id_ is not None:
            owner = self.by_id.get(id_)
            if owner is not None and not owner.closed:
                call = owner
            elif call is not None and (call.id is not None or name):
                call = None
        if call is None or (name and (name != call.name or args or not leaves)):
            return None
        return call


class _Call(Draft):
    __slots__ = ("_tree",)

    def __init__(self, id: str | None, name: str) -> None:
        super().__init__(id, name, needs_id=False)
        self._tree: PartialArgs | None = None

    def tree(self) -> PartialArgs:
        if self._tree is None:
            self._tree = PartialArgs()
        return self._tree

    def settled(self) -> Draft:
        """This call with its leaves put together."""
        if self._tree is not None:
            self.final = self._tree.value()
            self.defects = ["incomplete_arguments"] if self._tree.gaps else None
        return self


def _get(thing: dict[str, Any], name: str) -> Any:
    """A field under its JSON name, or under the name that protobuf's Python dumps use."""
    if name in thing:
        return thing[name]
    return thing.get("".join("_" + letter.lower() if letter.isupper() else letter for letter in name))
