"""Streamed tool calls into finished ones: pure, usable alone, no I/O, no clock.

`CompletionAssembler` is the entry point: feed it what a provider's stream gives, in any of the `FORMATS`, and
`finish()` returns the calls with every defect named. `ToolCallAccumulator` is the strict core for OpenAI
deltas alone, `TolerantAccumulator` the one for what servers really send.
"""

from toolsd.streams.arguments import ArgumentsMalformed, parse_tool_call_arguments
from toolsd.streams.assembler import CompletionAssembler
from toolsd.streams.assembly import AssembledCall, Assembly, Step
from toolsd.streams.bounds import StreamBudget, StreamWatchdog
from toolsd.streams.defects import CompletionDefects, detect_completion_defect
from toolsd.streams.formats import FORMATS
from toolsd.streams.strict import ToolCallAccumulator
from toolsd.streams.tolerant import TolerantAccumulator

__all__ = [
    "FORMATS",
    "ArgumentsMalformed",
    "AssembledCall",
    "Assembly",
    "CompletionAssembler",
    "CompletionDefects",
    "Step",
    "StreamBudget",
    "StreamWatchdog",
    "TolerantAccumulator",
    "ToolCallAccumulator",
    "detect_completion_defect",
    "parse_tool_call_arguments",
]
