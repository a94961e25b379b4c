# Made from async_client.py by scripts/unasync. Do not edit.
"""The client: a coordinator's tools, called from a program.

Owns its links and, when made by `local`, the coordinator embedded in this process. Must not know sockets or how a
turn proceeds (`sync_turn`).
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, overload

from toolsd import codec, conversation, messages, runtime
from toolsd.client.sync_link import Link, Links, blocking
from toolsd.client.sync_turn import Turn, OnReport
from toolsd.client.calls import Arguments, check_settings, normalised
from toolsd.client.sessions import Sessions
from toolsd.client.views import Tool, tools_of
from toolsd.core.model import OnCrash, OnDefect
from toolsd.embedded import Embedded
from toolsd.errors import ConfigError, CoordinatorLost, UsageError
from toolsd.result import Result
from toolsd.streams import CompletionAssembler, StreamBudget

CONNECT_TIMEOUT = 5.0


class Client:
    """A client of one coordinator. Made by `connect` or `local`, used as a context manager or ended with `close()`.

    It connects when it is first used. When its coordinator was lost, the next turn tries to connect again.
    """

    def __init__(self, address: str | None, embedded: Embedded | None, timeout: float) -> None:
        self._address = address
        self._embedded = embedded
        self._names: dict[str, str] = {}  # what providers were told, where it differs: name there -> tool
        self.sessions = Sessions()
        self._links = Links(os.path.basename(sys.argv[0]) or "python", timeout)

    @classmethod
    def connect(cls, address: str | None = None, *, timeout: float = CONNECT_TIMEOUT) -> Self:
        """A client of a running daemon: `ipc:///path`, or (None) the one of this user. `timeout` is seconds."""
        return cls(address, None, timeout)

    @classmethod
    def local(
        cls,
        config: str | os.PathLike[str] | None = None,
        *,
        timeout: float = CONNECT_TIMEOUT,
        allow_unsandboxed: bool = False,
    ) -> Self:
        """A client with a coordinator of its own in this process, with the sources of `config` (a `toolsd.toml`).

        No daemon is needed; the workers end with the client. Sources whose mode is "off" are refused unless
        `allow_unsandboxed`.
        """
        return cls(None, Embedded(config, allow_unsandboxed), timeout)

    @property
    def address(self) -> str:
        """Where the coordinator is. Other clients may connect to it, also to an embedded one.

        Raises:
            UsageError: an embedded coordinator was not started yet.
            ConfigError: there is no usable runtime directory.
        """
        if self._embedded is not None:
            return self._embedded.address
        if self._address is None:
            self._address = runtime.address_of(runtime.socket_path())
        return self._address

    def open(self) -> Self:
        """Connect now.

        Raises:
            ConfigError: the configuration of a local client has mistakes.
            CoordinatorUnreachable: nobody answers within the bound; says how to start a daemon.
            VersionMismatch: the coordinator speaks another protocol version.
        """
        self.link()
        return self

    def close(self) -> None:
        """End the connections, and the embedded coordinator with its workers. Idempotent."""
        self._links.close()
        if self._embedded is not None:
            blocking(self._embedded.stop)

    def __enter__(self) -> Self:
        try:
            return self.open()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    # --- turns ------------------------------------------------------------------------------------------------------

    def turn(
        self,
        *,
        session: str | None = None,
        deadline: float | None = None,
        on_crash: OnCrash | None = None,
        on_defect: OnDefect = "refuse",
        on_report: OnReport | None = None,
        format: str = "auto",
        strict: bool = False,
        idle: float | None = 300.0,
        total: float | None = 3600.0,
        budget: StreamBudget | None = None,
        id: str | None = None,
    ) -> Turn:
        """A new turn, for one completion of the model.

        `session` pins it to one replica of every source that keeps state. `deadline` is seconds for all of its calls,
        counted from `finish`. `on_crash` "fail_calls" puts a worker's death into the slots of its calls instead of
        failing the turn (None: as the source is configured). `on_defect` "run" runs a damaged completion all the same.
        `on_report` is called with every `CallReport` of a running call. `format` names the stream's format, `strict`
        repairs nothing in it; `idle` and `total` are its clocks in seconds, `budget` its size. `id` names the turn.

        Raises:
            UsageError: an unknown format, an id that is empty or longer than 128 characters, or another setting that
                does not fit.
        """
        check_settings(id, session, deadline, on_crash, on_defect)
        said = conversation.Listener()
        return Turn(
            self,
            id or secrets.token_hex(8),
            CompletionAssembler(format, strict=strict, budget=budget, listen=said),
            said,
            self._names,
            session=session,
            deadline=deadline,
            on_crash=on_crash,
            on_defect=on_defect,
            on_report=on_report,
            idle=idle,
            total=total,
        )

    def call(
        self,
        tool: str,
        arguments: Arguments = None,
        *,
        session: str | None = None,
        deadline: float | None = None,
        on_report: OnReport | None = None,
    ) -> Result:
        """Call one tool. `arguments` is a dict or JSON text.

        Raises: as `Turn.finish`. An error of the call itself is in the result, not raised.
        """
        turn = self.turn(session=session, deadline=deadline, on_report=on_report)
        return (turn.run(normalised([(tool, arguments)])))[0]

    def run(
        self,
        calls: Iterable[Any],
        *,
        session: str | None = None,
        deadline: float | None = None,
        on_crash: OnCrash | None = None,
        on_report: OnReport | None = None,
    ) -> list[Result]:
        """Run finished calls as one turn: results in their order.

        A call is `("tool", {...})`, `{"tool": ..., "arguments": ..., "id": ...}`, or an OpenAI tool call.

        Raises: as `Turn.finish`.
        """
        turn = self.turn(session=session, deadline=deadline, on_crash=on_crash, on_report=on_report)
        return turn.run(normalised(calls))

    # --- questions --------------------------------------------------------------------------------------------------

    @overload
    def tools(self) -> list[Tool]: ...
    @overload
    def tools(self, format: str) -> list[dict[str, Any]]: ...
    def tools(self, format: str | None = None) -> list[Tool] | list[dict[str, Any]]:
        """All tools that can be called, in the order of the configuration.

        With a `format` (a key of `toolsd.conversation.FORMATS`, such as "openai-chat" or "anthropic") it is the value
        of `tools=` for that provider. Names that the provider forbids are changed there, and changed back in every
        turn of this client. Schemas are trimmed to what it takes; `toolsd check` says what was cut, and
        `toolsd.conversation.offer` gives it as a list.

        Just after the start it waits until every source has said what it offers, or failed to.

        Raises:
            UsageError: an unknown format.
        """
        tools = tools_of(self._ask("tools"))
        if format is None:
            return tools
        offer = conversation.offer(tools, format)
        self._names.update(offer.names)
        return offer.tools

    def ps(self) -> dict[str, Any]:
        """What the coordinator is doing: sources, workers, turns, clients. A JSON object."""
        body: dict[str, Any] = self._ask("ps")
        return body

    def reload(self, *, dry_run: bool = False) -> list[dict[str, Any]]:
        """Have the coordinator read its configuration again, and wait until it is in force; with `dry_run` only look.

        Gives what changes: an object `{"stanza": "source.NAME", "kind": "added" | "removed" | "changed" | "unchanged",
        "keys": [{"key", "before", "after"}]}` for each source, and for `daemon` if its settings differ. Those take
        effect when the daemon is started again.

        Raises:
            ConfigError: the file has mistakes, or a changed source does not start. Nothing was changed.
        """
        body = self._ask("reload", dry_run=dry_run)
        if body["refused"] is not None:
            raise ConfigError(body["refused"])
        changes: list[dict[str, Any]] = body["changes"]
        return changes

    def stop(self, *, now: bool = False) -> None:
        """Stop the coordinator and wait until it is gone: open turns may finish, unless `now`."""
        link = self.link()
        gone = link.routes.open("gone")
        self._ask("stop", now=now)
        try:
            link.next(gone)
        except CoordinatorLost:
            return

    def _ask(self, what: str, **args: Any) -> Any:
        link = self.link()
        number = link.routes.next_ask()
        inbox = link.routes.open(number)
        try:
            link.send(messages.Ask(number, what, args))
            arrival = link.next(inbox)
        finally:
            link.routes.close(number)
        answer = arrival.message
        assert isinstance(answer, messages.Answer)
        if answer.error is not None:
            raise UsageError(answer.error)
        return codec.unpack(codec.payload(answer.body, arrival.frames))

    # --- links ------------------------------------------------------------------------------------------------------

    def link(self) -> Link:
        """A link that works: the existing one or a new one."""
        self._links.check_use()
        if self._embedded is not None:
            blocking(self._embedded.start)
        return self._links.current(self.address)

    def existing_link(self) -> Link | None:
        """The link if there is one, without waiting."""
        return self._links.existing()
