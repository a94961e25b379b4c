"""toolsd: runs a model's streamed tool calls, one batch per source, each source in its own worker process.

Every public name is here and is loaded when it is first used, so that a source file pays for no client and a client
for no worker.

Layout
    errors          the one hierarchy of errors and the values of failure
    streams         deltas of a completion -> finished calls (pure, usable alone)
    core            turns, batches, replicas: events -> instructions (pure)
    messages, codec, transport      what is said on the links, as bytes, over zmq
    service, node, processes, forkserver, worker, sandbox       the coordinator and what runs on its machine
    host, launch    what a kind of source implements, and what starts a worker of it
    source, schema, hints, docstrings, context, batch           the authors' API
    content, plain, result          what fills a slot
    client          how a program uses it: asynchronous, and the synchronous one made from it
    testing         a source in memory, for its author's tests
    config, cli, telemetry          toolsd.toml, the commands, what they tell
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "toolsd.client": ("AsyncClient", "AsyncTurn", "CallReport", "Client", "Turn", "connect", "local"),
    "toolsd.result": ("Result",),
    "toolsd.source": ("Source", "tool"),
    "toolsd.context": ("Context",),
    "toolsd.batch": ("BatchCall", "BatchResults", "Slot"),
    "toolsd.content": ("Blob", "Image", "Json", "LogRecord", "Output", "Progress", "Text"),
    "toolsd.errors": (
        "AlreadyRunning",
        "BatchRaised",
        "BatchTimeout",
        "CompletionDefective",
        "ConfigError",
        "CoordinatorLost",
        "CoordinatorUnreachable",
        "Draining",
        "DuplicateTurn",
        "Evidence",
        "Failure",
        "InternalError",
        "LedgerEntry",
        "LocalProtocolError",
        "NameCollision",
        "Overloaded",
        "PeerProtocolError",
        "ProtocolError",
        "ProtocolViolation",
        "QueueTimeout",
        "ResultInvalid",
        "ResultsIncomplete",
        "SlotError",
        "SourceStartFailed",
        "SourceUnavailable",
        "StateLost",
        "ToolError",
        "ToolsdError",
        "TurnCancelled",
        "TurnFailed",
        "TurnTimeout",
        "UsageError",
        "VersionMismatch",
        "WorkerCrashed",
        "WorkerLost",
        "WorkerOutOfMemory",
    ),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604 - the names of the table are text

if TYPE_CHECKING:
    from toolsd.batch import (
        BatchCall as BatchCall,
    )
    from toolsd.batch import (
        BatchResults as BatchResults,
    )
    from toolsd.batch import (
        Slot as Slot,
    )
    from toolsd.client import AsyncClient as AsyncClient
    from toolsd.client import AsyncTurn as AsyncTurn
    from toolsd.client import CallReport as CallReport
    from toolsd.client import Client as Client
    from toolsd.client import Turn as Turn
    from toolsd.client import connect as connect
    from toolsd.client import local as local
    from toolsd.content import (
        Blob as Blob,
    )
    from toolsd.content import (
        Image as Image,
    )
    from toolsd.content import (
        Json as Json,
    )
    from toolsd.content import (
        LogRecord as LogRecord,
    )
    from toolsd.content import (
        Output as Output,
    )
    from toolsd.content import (
        Progress as Progress,
    )
    from toolsd.content import (
        Text as Text,
    )
    from toolsd.context import (
        Context as Context,
    )
    from toolsd.errors import (
        AlreadyRunning as AlreadyRunning,
    )
    from toolsd.errors import (
        BatchRaised as BatchRaised,
    )
    from toolsd.errors import (
        BatchTimeout as BatchTimeout,
    )
    from toolsd.errors import (
        CompletionDefective as CompletionDefective,
    )
    from toolsd.errors import (
        ConfigError as ConfigError,
    )
    from toolsd.errors import (
        CoordinatorLost as CoordinatorLost,
    )
    from toolsd.errors import (
        CoordinatorUnreachable as CoordinatorUnreachable,
    )
    from toolsd.errors import (
        Draining as Draining,
    )
    from toolsd.errors import (
        DuplicateTurn as DuplicateTurn,
    )
    from toolsd.errors import (
        Evidence as Evidence,
    )
    from toolsd.errors import (
        Failure as Failure,
    )
    from toolsd.errors import (
        InternalError as InternalError,
    )
    from toolsd.errors import (
        LedgerEntry as LedgerEntry,
    )
    from toolsd.errors import (
        LocalProtocolError as LocalProtocolError,
    )
    from toolsd.errors import (
        NameCollision as NameCollision,
    )
    from toolsd.errors import (
        Overloaded as Overloaded,
    )
    from toolsd.errors import (
        PeerProtocolError as PeerProtocolError,
    )
    from toolsd.errors import (
        ProtocolError as ProtocolError,
    )
    from toolsd.errors import (
        ProtocolViolation as ProtocolViolation,
    )
    from toolsd.errors import (
        QueueTimeout as QueueTimeout,
    )
    from toolsd.errors import (
        ResultInvalid as ResultInvalid,
    )
    from toolsd.errors import (
        ResultsIncomplete as ResultsIncomplete,
    )
    from toolsd.errors import (
        SlotError as SlotError,
    )
    from toolsd.errors import (
        SourceStartFailed as SourceStartFailed,
    )
    from toolsd.errors import (
        SourceUnavailable as SourceUnavailable,
    )
    from toolsd.errors import (
        StateLost as StateLost,
    )
    from toolsd.errors import (
        ToolError as ToolError,
    )
    from toolsd.errors import (
        ToolsdError as ToolsdError,
    )
    from toolsd.errors import (
        TurnCancelled as TurnCancelled,
    )
    from toolsd.errors import (
        TurnFailed as TurnFailed,
    )
    from toolsd.errors import (
        TurnTimeout as TurnTimeout,
    )
    from toolsd.errors import (
        UsageError as UsageError,
    )
    from toolsd.errors import (
        VersionMismatch as VersionMismatch,
    )
    from toolsd.errors import (
        WorkerCrashed as WorkerCrashed,
    )
    from toolsd.errors import (
        WorkerLost as WorkerLost,
    )
    from toolsd.errors import (
        WorkerOutOfMemory as WorkerOutOfMemory,
    )
    from toolsd.result import (
        Result as Result,
    )
    from toolsd.source import (
        Source as Source,
    )
    from toolsd.source import (
        tool as tool,
    )


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'toolsd' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
