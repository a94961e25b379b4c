"""toolsd: runs a model's streamed tool calls, one batch per source, each source in its own worker process.

Every public name is here and is loaded when it is first used, so that a source file pays for no client and a client
for no worker.

Layout
    a caller's side
        client, daemon, embedded        how a program uses toolsd, and the two places a coordinator can be
        streams                         deltas of a completion -> finished calls (pure, usable alone)
        conversation                    tools -> a provider's `tools=`; a turn -> messages to append (pure)
        result                          one call's slot after the turn
    the coordinator
        core                            turns, batches, replicas: events -> instructions (pure)
        service, reception, report      the loop around it, its clients, what it tells of itself
        runtime                         where it lives on disk
    its machine
        node, link, processes           workers as the coordinator's side sees them
        forkserver, oom, leftovers      who forks workers, how they died, what they leave behind
        sandbox, flight, signals        what confines a worker, what it leaves in memory, how it is interrupted
    a worker
        worker, running                 its life, and a batch in it
        host, launch                    what a kind of source implements, and what it is started with
        launcher                        how it becomes a program of its own, in another language
    an author's side
        source, batch, context          the API
        schema, hints, docstrings       signatures -> JSON schema and validation
        misfits, phrases                what a model is told of arguments that do not fit
        content, plain                  results as bytes
        testing                         a source in memory, for its author's tests
    everywhere
        errors                          the one hierarchy of errors and the values of failure
        messages, codec, transport      what is said on the links, as bytes, over zmq
        config, cli, telemetry          toolsd.toml, the commands, the logs
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

if TYPE_CHECKING:  # the table again, for mypy and editors; a test holds the two together
    from toolsd.batch import (
        BatchCall as BatchCall,
        BatchResults as BatchResults,
        Slot as Slot,
    )
    from toolsd.client import (
        AsyncClient as AsyncClient,
        AsyncTurn as AsyncTurn,
        CallReport as CallReport,
        Client as Client,
        Turn as Turn,
        connect as connect,
        local as local,
    )
    from toolsd.content import (
        Blob as Blob,
        Image as Image,
        Json as Json,
        LogRecord as LogRecord,
        Output as Output,
        Progress as Progress,
        Text as Text,
    )
    from toolsd.context import (
        Context as Context,
    )
    from toolsd.errors import (
        AlreadyRunning as AlreadyRunning,
        BatchRaised as BatchRaised,
        BatchTimeout as BatchTimeout,
        CompletionDefective as CompletionDefective,
        ConfigError as ConfigError,
        CoordinatorLost as CoordinatorLost,
        CoordinatorUnreachable as CoordinatorUnreachable,
        Draining as Draining,
        DuplicateTurn as DuplicateTurn,
        Evidence as Evidence,
        Failure as Failure,
        InternalError as InternalError,
        LedgerEntry as LedgerEntry,
        LocalProtocolError as LocalProtocolError,
        NameCollision as NameCollision,
        Overloaded as Overloaded,
        PeerProtocolError as PeerProtocolError,
        ProtocolError as ProtocolError,
        ProtocolViolation as ProtocolViolation,
        QueueTimeout as QueueTimeout,
        ResultInvalid as ResultInvalid,
        ResultsIncomplete as ResultsIncomplete,
        SlotError as SlotError,
        SourceStartFailed as SourceStartFailed,
        SourceUnavailable as SourceUnavailable,
        StateLost as StateLost,
        ToolError as ToolError,
        ToolsdError as ToolsdError,
        TurnCancelled as TurnCancelled,
        TurnFailed as TurnFailed,
        TurnTimeout as TurnTimeout,
        UsageError as UsageError,
        VersionMismatch as VersionMismatch,
        WorkerCrashed as WorkerCrashed,
        WorkerLost as WorkerLost,
        WorkerOutOfMemory as WorkerOutOfMemory,
    )
    from toolsd.result import (
        Result as Result,
    )
    from toolsd.source import (
        Source as Source,
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
