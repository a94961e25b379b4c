"""The authors' API: a source, its tools, its hooks.

Owns what an author declares. Must not know how a batch runs or where: that is the Host's (`toolsd_workers.python`).

    source = toolsd.Source("notes")

    @source.tool
    def add(text: str, tags: list[str] = []) -> int: ...
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar, overload

from toolsd.core.model import ToolSpec
from toolsd.errors import UsageError
from toolsd.schema import Parameters, where

Scheduling = Literal["sequential", "concurrent", "threads"]
F = TypeVar("F", bound=Callable[..., Any])
Hook = Callable[[], Any]
BatchFunction = Callable[[Any, Any], Awaitable[None] | None]

# What MCP allows; providers allow less, and say so themselves.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
# Where a function that was decorated with `tool` keeps its declaration.
MARK = "__toolsd_tool__"


class Tool:
    """One declared tool: its function, and what a model and a coordinator are told of it.

    `timeout` is seconds; `single` says that it is thread-safe and belongs to no source.
    """

    __slots__ = ("_description", "_names", "_parameters", "function", "idempotent", "name", "single", "timeout")

    def __init__(
        self,
        function: Callable[..., Any],
        names: Mapping[str, Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        single: bool = False,
    ) -> None:
        self.function = function
        self.name = name if name is not None else getattr(function, "__name__", "")
        self.timeout = timeout
        self.idempotent = idempotent
        self.single = single
        self._description = description
        self._names = names
        self._parameters: Parameters | None = None
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{where(function)}: {self.name!r} is no tool name; it has 1 to 128 of A-Z a-z 0-9 _ . -",
                hint="give one: @source.tool(name='...')" if name is None else None,
            )
        if timeout is not None and not timeout > 0:
            raise UsageError(f"{where(function)}: timeout is {timeout!r}; it is seconds above 0, or None")
        code = inspect.unwrap(function)
        if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
            raise UsageError(
                f"{where(function)} yields, and a tool has one result",
                hint="return the whole result; send pieces before it with Context.write",
            )
        with suppress(NameError):  # a type defined further down: `parameters` looks again when the module is whole
            self._parameters = Parameters(function, names)
            self._names = {}  # a frame's variables; they are not kept longer than they are needed

    @property
    def parameters(self) -> Parameters:
        """What the function takes. Raises UsageError if a type hint names what does not exist."""
        if self._parameters is None:
            try:
                self._parameters = Parameters(self.function, self._names)
            except NameError as error:
                raise UsageError(
                    f"{where(self.function)}: its type hints cannot be read: {error}",
                    hint="a type imported only under TYPE_CHECKING is not there when the source runs",
                ) from None
        return self._parameters

    @property
    def asynchronous(self) -> bool:
        """Whether calling it gives an awaitable, as far as can be told: itself, what it wraps, or its `__call__`."""
        function = self.function
        ways = (function, inspect.unwrap(function), getattr(function, "__call__", None))  # noqa: B004
        return any(inspect.iscoroutinefunction(way) for way in ways)

    @property
    def spec(self) -> ToolSpec:
        parameters = self.parameters
        description = parameters.description if self._description is None else self._description
        return ToolSpec(self.name, description, parameters.schema, self.idempotent, self.timeout)


class Source:
    """An owner of many tools and of the state they share. One file has one.

    A source gets all its calls of a turn as one batch. `scheduling` says how they run:

    - `"sequential"`: one after the other, in the model's order, on one thread.
    - `"concurrent"`: `async def` tools side by side on one event loop; plain functions run on that loop's thread, in
      order, and hold the others up while they run.
    - `"threads"`: plain functions side by side, each on a thread; `async def` tools side by side on one event loop.

    `max_concurrency` bounds how many calls of one batch run at a time (`None`: all).
    """

    def __init__(self, name: str, *, scheduling: Scheduling = "sequential", max_concurrency: int | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise UsageError("a source has a name: Source('notes')")
        if scheduling not in ("sequential", "concurrent", "threads"):
            raise UsageError(f"source {name}: scheduling is {scheduling!r}; it is sequential, concurrent or threads")
        if max_concurrency is not None and (scheduling == "sequential" or max_concurrency < 1):
            raise UsageError(
                f"source {name}: max_concurrency is {max_concurrency!r}; it is a count above 0, for a concurrent or "
                "threads source"
            )
        self.name = name
        self.scheduling = scheduling
        self.max_concurrency = max_concurrency
        self.tools: dict[str, Tool] = {}
        self.start_hooks: list[Hook] = []
        self.close_hooks: list[Hook] = []
        self.batch_function: BatchFunction | None = None

    def __repr__(self) -> str:
        return f"Source({self.name!r}, {self.scheduling}, tools: {', '.join(self.tools) or 'none'})"

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
    ) -> Any:
        """Declare a function as a tool of this source. The function itself stays as it is.

        `name` and `description` are taken from the function and its docstring if not given. `timeout` (seconds)
        stops an `async def` tool with the slot error `tool_timeout`; a plain function cannot be stopped, for it the
        timeout only bounds `Context.deadline`. `idempotent`: running it twice does no harm, so it may be retried.

        Raises:
            UsageError: the function cannot be described to a model, or the name is taken.
        """
        names = sys._getframe(1).f_locals

        def declare(function: F) -> F:
            tool = Tool(function, names, name=name, description=description, timeout=timeout, idempotent=idempotent)
            taken = self.tools.get(tool.name)
            if taken is not None:
                both = f"{where(taken.function)} and {where(function)}"
                raise UsageError(f"source {self.name} has two tools called {tool.name}: {both}")
            self.tools[tool.name] = tool
            return function

        return declare if function is None else declare(function)

    def on_start(self, hook: F) -> F:
        """Run `hook` (plain or async) once in the worker, before the first batch. If it raises, the source is not
        started. An async hook, like an async tool, gives the source's worker an event loop."""
        self.start_hooks.append(hook)
        return hook

    def on_close(self, hook: F) -> F:
        """Run `hook` (plain or async) once, before the worker leaves by itself: the last ones declared first. It is
        not run when the worker is killed."""
        self.close_hooks.append(hook)
        return hook

    @property
    def invoke_batch(self) -> Callable[[BatchFunction], BatchFunction]:
        """Take the whole batch into your own hands: `@source.invoke_batch` above, or assign, a function (plain or
        async) of `(calls, results)`.

        `calls` are the calls whose arguments are valid, in the model's order; each has `id`, `tool`, `arguments` (a
        dict of typed values), `context` and `invoke()`, which calls the declared function. `results` has one slot a
        call: `results[i].ok(value)` or `results[i].fail("text for the model")`, from any thread, exactly once each.
        An exception that comes out of the function fails the whole batch and with it the turn; one that `invoke()`
        raised can be put into its slot with `results[i].fail(error)`.
        """

        def replace(function: BatchFunction) -> BatchFunction:
            self.invoke_batch = function
            return function

        return replace

    @invoke_batch.setter
    def invoke_batch(self, function: BatchFunction) -> None:
        if self.batch_function is not None:
            raise UsageError(f"source {self.name}: invoke_batch is replaced twice; a batch can go to one function only")
        self.batch_function = function


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
) -> Callable[[F], F]: ...


def tool(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
) -> Any:
    """Declare a thread-safe function as a tool that belongs to no source: each call of a turn runs on its own thread
    (an `async def` function as its own task). The arguments are those of `Source.tool`.

    Raises:
        UsageError: the function cannot be described to a model.
    """
    names = sys._getframe(1).f_locals

    def declare(function: F) -> F:
        made = Tool(
            function,
            names,
            name=name,
            description=description,
            timeout=timeout,
            idempotent=idempotent,
            single=True,
        )
        try:
            setattr(function, MARK, made)
        except AttributeError:
            raise UsageError(f"{where(function)} cannot be marked as a tool; wrap it in a function") from None
        return function

    return declare if function is None else declare(function)
