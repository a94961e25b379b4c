"""A batch given whole to the author's `invoke_batch`.

Owns what the author's function gets. Calls whose arguments do not fit are answered here and never shown to it. Must
not know whether the function blocks or is awaited, nor asyncio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any

from toolsd.batch import BatchCall, BatchResults, Slot
from toolsd.content import encode_error, encode_result
from toolsd.errors import SlotError
from toolsd.host import HostBatch, HostCall
from toolsd.source import BatchFunction

from .calls import PASSED_ON, Runnable


def hand_over(
    function: BatchFunction, batch: HostBatch, given: Sequence[HostCall], tools: dict[str, Runnable]
) -> Awaitable[None] | None:
    """Call `function` with the calls that are valid and their slots; awaitable if it is."""
    calls: list[BatchCall] = []
    slots: list[Slot] = []
    for call in given:
        tool = tools[call.tool]
        arguments = tool.bind(batch, call)
        if arguments is None:
            continue
        context = tool.context(batch, call)
        calls.append(BatchCall(tool.invoke, arguments=arguments, context=context, raw=call.arguments))
        slots.append(Slot(f"call {call.slot} ({call.tool})", partial(_fill, tool, batch, call.slot)))
        batch.started(call.slot)  # from here on the function may run any of them
    if not calls:
        return None
    awaited = function(calls, BatchResults(slots))
    return awaited if isawaitable(awaited) else None


def _fill(tool: Runnable, batch: HostBatch, slot: int, what: Any) -> None:
    if isinstance(what, (SlotError, Exception)):
        batch.finished(slot, encode_error(what) if isinstance(what, SlotError) else tool.failed(batch, what))
        return
    try:
        outcome = encode_result(what)
    except PASSED_ON:
        raise
    except Exception as error:  # noqa: BLE001 - values may run code of their authors while they are read
        outcome = tool.failed(batch, error)
    tool.fill(batch, slot, outcome)
