"""Calls as callers have them, into calls as they are sent: pure.

Owns which shapes `client.call` and `client.run` take, and which settings a turn may have. Must not know links or turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import msgspec

from toolsd import codec
from toolsd.core.model import OnCrash, OnDefect
from toolsd.errors import Failure, LedgerEntry, TurnFailed, UsageError, turn_failed
from toolsd.messages import TURN_ID_MAX, WireCall
from toolsd.streams import AssembledCall
from toolsd.streams.arguments import encodable

Arguments = Mapping[str, Any] | str | None


def argument_text(arguments: Arguments) -> str:
    """Arguments as JSON text. A text is taken as it is.

    Raises:
        UsageError: there is no JSON for it.
    """
    if arguments is None:
        return "{}"
    if isinstance(arguments, str):
        return arguments
    if not isinstance(arguments, Mapping):
        raise UsageError(f"arguments are a dict or JSON text, not {type(arguments).__name__}")
    try:
        return msgspec.json.encode(dict(arguments)).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(f"the arguments have no JSON form: {error}") from error


def normalised(calls: Iterable[Any]) -> tuple[AssembledCall, ...]:
    """Finished calls in any of the shapes they come in.

    A call is `(tool, arguments)`, `{"tool", "arguments", "id"?}`, an OpenAI tool call (`{"id", "function": {"name",
    "arguments"}}`, dict or SDK object), or an `AssembledCall`.

    Raises:
        UsageError: one is none of these; says which.
    """
    return tuple([_normal(index, call) for index, call in enumerate(calls)])


def _normal(index: int, call: Any) -> AssembledCall:
    if isinstance(call, AssembledCall):
        return call
    if isinstance(call, tuple) and len(call) == 2:
        id_, (tool, arguments) = None, call
    else:
        look = call.get if isinstance(call, dict) else partial(_get, call)
        id_, function = look("id"), look("function")
        if function is None:
            tool, arguments = look("tool"), look("arguments")
        else:
            tool, arguments = _get(function, "name"), _get(function, "arguments")
    if not isinstance(tool, str) or not (id_ is None or isinstance(id_, str)):
        raise UsageError(
            f"call {index} is not a call: {call!r:.200}",
            hint='give ("tool", {...}), {"tool": ..., "arguments": ...} or an OpenAI tool call',
        )
    text = argument_text(arguments)
    if text.isascii() and tool.isascii() and (id_ is None or id_.isascii()):
        return AssembledCall(index, id_, tool, text, None)
    # What no message can carry becomes the defect of this call alone: the tool is not run, the slot says why.
    sendable = (None if id_ is None else encodable(id_), encodable(tool), encodable(text))
    defects = () if sendable == (id_, tool, text) else ("lone_surrogate",)
    return AssembledCall(index, *sendable, None, defects)


def _get(value: Any, key: str) -> Any:
    if type(value) is dict or isinstance(value, Mapping):
        return value.get(key)
    return getattr(value, key, None)


def check_settings(id: Any, session: Any, deadline: Any, on_crash: Any, on_defect: Any) -> None:
    """Refuse settings of a turn here that the coordinator would refuse. Raises UsageError."""
    if id is not None and not (isinstance(id, str) and 0 < len(id) <= TURN_ID_MAX):
        raise UsageError(f"a turn id is a text of 1 to {TURN_ID_MAX} characters")
    if session is not None and not isinstance(session, str):
        raise UsageError(f"a session is a text, not {type(session).__name__}")
    if deadline is not None and not (isinstance(deadline, (int, float)) and 0 <= deadline < math.inf):
        raise UsageError(f"a deadline is seconds from now, not {deadline!r}")
    if on_crash not in (None, *get_args(OnCrash)):
        raise UsageError(f"on_crash is one of {', '.join(get_args(OnCrash))}, not {on_crash!r}")
    if on_defect not in get_args(OnDefect):
        raise UsageError(f"on_defect is one of {', '.join(get_args(OnDefect))}, not {on_defect!r}")


def to_wire(calls: Sequence[AssembledCall], frames: codec.Frames) -> tuple[WireCall, ...]:
    """Calls for a `Run`; large arguments go to `frames`.

    The free text of a custom tool becomes the argument `input`: a tool for it has that one parameter.

    Raises:
        LocalProtocolError: arguments are larger than a frame may be.
    """
    if any(call.custom for call in calls):
        calls = [_as_function(call) if call.custom else call for call in calls]
    if codec.inline([call.arguments for call in calls]):
        return tuple([WireCall(call.id, call.name, call.arguments, call.defect) for call in calls])
    put = frames.put
    return tuple([WireCall(call.id, call.name, put(call.arguments), call.defect) for call in calls])


def not_taken(calls: Sequence[AssembledCall]) -> TurnFailed:
    """The failure of a turn that a coordinator left unanswered when it took leave: it never read it."""
    ledger = tuple([LedgerEntry(index, call.id, call.name, None, "not_sent") for index, call in enumerate(calls)])
    return turn_failed(Failure("draining", "the coordinator has stopped and did not take the turn", ledger=ledger))


def _as_function(call: AssembledCall) -> AssembledCall:
    return msgspec.structs.replace(call, arguments=msgspec.json.encode({"input": call.arguments}).decode())
