"""Which tool belongs to which source, one generation at a time.

Owns the index of a generation and the answer to an unknown name. Must not know workers or turns' states.

A generation is a set of sources in file order. Its set never changes; while sources are still in their first
discovery its index grows, in file order whatever the order of arrival: a source one of whose tools an earlier source
already declares is refused whole, naming both.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from toolsd.core.model import ToolSpec, Value
from toolsd.core.pool import Pool
from toolsd.errors import Failure, SlotError

if TYPE_CHECKING:
    from toolsd.core.turn import Turn

# How many names that streams asked for in vain are remembered while discovery goes on.
_WANTED_MAX = 1024
# For how many unknown names of one turn near ones are searched, and how much of a name is looked at.
_NEAR_MAX, _NAME_MAX = 4, 128


class ToolView(Value, frozen=True):
    """One tool of the current generation, as `tools` shows it."""

    source: str
    name: str
    description: str
    parameters: object
    idempotent: bool
    timeout: float | None


class Generation:
    """One published, or about to be published, version of the registry.

    `holders` counts turns that may still look a name up in it. `waiting` are submitted turns with unresolved names.
    `wanted` are names that streams saw and nobody declares yet.
    """

    __slots__ = ("holders", "index", "number", "pools", "waiting", "wanted")

    def __init__(self, number: int, pools: tuple[Pool, ...]) -> None:
        self.number = number
        self.pools = pools
        self.index: dict[str, Pool] = {}
        self.holders = 0
        self.waiting: dict[str, Turn] = {}
        self.wanted: set[str] = set()

    def discovering(self) -> bool:
        """Whether a first discovery is still going on."""
        return any(pool.discovery == "pending" for pool in self.pools)

    def build(self) -> dict[Pool, Failure]:
        """Index all described sources in file order; the collisions, by the source that loses."""
        index: dict[str, Pool] = {}
        refused: dict[Pool, Failure] = {}
        for pool in self.pools:
            if pool.discovery != "described":
                continue
            taken = next((name for name in pool.index if name in index), None)
            if taken is not None:
                refused[pool] = collision(taken, index[taken].name, pool.name)
                continue
            for name in pool.index:
                index[name] = pool
        self.index = index
        return refused

    def want(self, name: str) -> None:
        """Remember a name that may be declared later."""
        if len(self.wanted) < _WANTED_MAX:
            self.wanted.add(name)

    def tools(self) -> tuple[ToolView, ...]:
        """All tools, sources in file order, tools in the order of their source."""
        return tuple(
            ToolView(pool.name, tool.name, tool.description, tool.parameters, tool.idempotent, tool.timeout)
            for pool in self.pools
            for tool in pool.tools
            if self.index.get(tool.name) is pool
        )

    def unknown(self, names: Iterable[str]) -> dict[str, SlotError]:
        """The answers to names nobody declares. Near names are searched for the first few of them only: a search
        looks at every tool, and a turn may have ten thousand calls."""
        distinct = dict.fromkeys(names)
        return {name: self._unknown(name, rank < _NEAR_MAX) for rank, name in enumerate(distinct)}

    def _near(self, name: str) -> list[str]:
        """The tools whose names are like `name`, the nearest first; case makes no difference."""
        folded = {tool.casefold(): tool for tool in self.index}
        return [folded[found] for found in get_close_matches(name.casefold(), folded, n=3, cutoff=0.6)]

    def _unknown(self, name: str, search: bool) -> SlotError:
        near = self._near(name[:_NAME_MAX]) if search else []
        silent = [pool.name for pool in self.pools if pool.discovery != "described" or pool.refused is not None]
        text = f"There is no tool named {name[:_NAME_MAX]!r}."
        if near:
            text += " Did you mean " + " or ".join(repr(other) for other in near) + "?"
        if silent:
            text += f" (These sources are not available now: {', '.join(silent)}.)"
        details: dict[str, object] = {"near": near}
        if silent:
            details["unavailable_sources"] = silent
        return SlotError("unknown_tool", text, details)


def collision(tool: str, first: str, second: str) -> Failure:
    """Two sources declare the same name: the later one in file order is refused."""
    return Failure(
        code="name_collision",
        message=(
            f"source {second!r} declares the tool {tool!r}, which source {first!r} already has; "
            f"rename one of them. {second!r} is refused until then"
        ),
        source=second,
    )


def duplicate_tool(tools: tuple[ToolSpec, ...]) -> str | None:
    """A name that one source declares twice."""
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            return tool.name
        seen.add(tool.name)
    return None
