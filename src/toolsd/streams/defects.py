"""What is wrong with a finished completion: turn-level and call-level codes.

A code is a promise and is never renamed. A code that starts with `note:` does not stop a call. Turn-level:

| code | meaning |
| --- | --- |
| `finish_length` | cut by a token limit |
| `finish_content_filter` | stopped by a content filter, or refused |
| `malformed_function_call` | the provider itself disowns the call it made |
| `stream_error` | an error event, or a finish reason that says so |
| `finish_missing` | the stream ended without a finish reason: a cut connection looks the same |
| `finish_tool_calls_without_calls` | the reason says there are calls, and there are none |
| `dropped_deltas` | fragments or lines were dropped; what is left may be valid JSON that means something else |
| `stream_idle`, `stream_timeout` | a watchdog fired |
| `budget_bytes`, `budget_calls` | the stream exceeded its budget and was not read further |

Call-level: the codes of `toolsd.streams.arguments`, and `empty_name`, `illegal_name`, `missing_id`, `duplicate_id`,
`unterminated_block`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from toolsd.streams.arguments import MAX_DEPTH
from toolsd.streams.assembly import AssembledCall
from toolsd.streams.draft import Draft
from toolsd.streams.plain import read

# Finish reasons in lower case with underscores, of every provider that was looked at; others end a turn normally.
_LENGTH = {
    "length", "max_tokens", "max_output_tokens", "max_completion_tokens", "model_length", "max_length", "token_limit",
    "model_context_window_exceeded", "context_length_exceeded", "context_window_exceeded", "incomplete",
    "budget_exceeded", "max_messages",
}  # fmt: skip
_FILTERED = {
    "content_filter", "content_filtered", "refusal", "safety", "recitation", "blocklist", "prohibited_content", "spii",
    "image_safety", "image_prohibited_content", "image_recitation", "language", "guardrail_intervened", "model_armor",
    "jailbreak", "sensitive", "error_toxic",
}  # fmt: skip
_DISOWNED = {
    "malformed_function_call", "unexpected_tool_call", "malformed_tool_use", "malformed_model_output",
    "too_many_tool_calls", "malformed_response", "missing_thought_signature", "tool_use_failed",
}  # fmt: skip
_FAILED = {
    "error", "abort", "aborted", "cancelled", "canceled", "failed", "network_error", "timeout", "error_limit", "other",
    "insufficient_system_resource", "image_other", "escalation", "user_cancel", "steered",
}  # fmt: skip
_CALLS = {"tool_calls", "tool_call", "tool_use", "function_call", "function_calls", "requires_action"}


class CompletionDefects(NamedTuple):
    """Codes of the turn, and for each call its codes (defects and notes together)."""

    turn: tuple[str, ...]
    calls: tuple[tuple[str, ...], ...]

    def __bool__(self) -> bool:
        return bool(self.turn) or any(not code.startswith("note:") for codes in self.calls for code in codes)


def detect_completion_defect(
    calls: Sequence[Any],
    finish_reason: str | Iterable[str] | None,
    *,
    dropped_deltas: int = 0,
    stream_error: bool = False,
    max_depth: int = MAX_DEPTH,
) -> CompletionDefects:
    """Everything that speaks against running `calls`.

    `calls` are assembled calls: dicts of `ToolCallAccumulator.assembled()`, SDK tool calls, or `AssembledCall`s.
    `finish_reason` is the one reason or all reasons that were reported; None or none means that the stream ended
    without one. Arguments are parsed strictly, without any repair. Never raises.
    """
    reasons = (finish_reason,) if isinstance(finish_reason, str) else tuple(finish_reason or ())
    checked = check_ids([_checked(call, index, max_depth) for index, call in enumerate(calls)])
    turn = turn_defects(len(checked), reasons, dropped=dropped_deltas, failed=stream_error)
    return CompletionDefects(turn, tuple((*call.defects, *call.notes) for call in checked))


def turn_defects(
    calls: int, reasons: Iterable[str], *, dropped: int = 0, failed: bool = False, finish_expected: bool = True
) -> tuple[str, ...]:
    """The turn-level codes. `finish_expected` is false where the caller never showed us the chunks of the stream."""
    said = {normalised(reason) for reason in reasons if reason}
    failed = failed or not said.isdisjoint(_FAILED)
    found = []
    if not said.isdisjoint(_LENGTH):
        found.append("finish_length")
    if not said.isdisjoint(_FILTERED):
        found.append("finish_content_filter")
    if disowned(said):
        found.append("malformed_function_call")
    if failed:
        found.append("stream_error")
    if not said and finish_expected and not failed:
        found.append("finish_missing")
    if not calls and not said.isdisjoint(_CALLS):
        found.append("finish_tool_calls_without_calls")
    if dropped:
        found.append("dropped_deltas")
    return tuple(found)


def normalised(reason: str) -> str:
    return reason.strip().lower().replace("-", "_").replace(" ", "_")


def disowned(reasons: Iterable[str]) -> bool:
    """Whether one of the reasons says that the provider does not stand by its own calls."""
    return any(normalised(reason) in _DISOWNED for reason in reasons)


def check_ids(calls: Iterable[AssembledCall]) -> list[AssembledCall]:
    """`calls` with `duplicate_id` added to every call whose id an earlier one has."""
    seen: set[str] = set()
    checked = []
    for call in calls:
        if call.id is not None:
            if call.id in seen:
                checked.append(_with_defect(call, "duplicate_id"))
                continue
            seen.add(call.id)
        checked.append(call)
    return checked


def _with_defect(call: AssembledCall, code: str) -> AssembledCall:
    from msgspec.structs import replace

    return replace(call, defects=(*call.defects, code))


def _checked(call: Any, index: int, max_depth: int) -> AssembledCall:
    from toolsd.streams.settle import settle

    if isinstance(call, AssembledCall):
        return call
    function, custom, id_ = read(call, "function"), read(call, "custom"), read(call, "id")
    name = read(custom if custom is not None else function, "name")
    arguments = read(function, "arguments") if custom is None else read(custom, "input")
    draft = Draft(
        id_ if isinstance(id_, str) and id_ else None,
        name if isinstance(name, str) else "",
        custom=custom is not None,
    )
    draft.fragments = [arguments] if isinstance(arguments, (str, dict)) else []
    return settle(draft, index, repair=False, max_depth=max_depth)
