"""What a source declares with what its operator sets over it: the same for every kind of source.

Owns that rule. Must not know how tools are declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from toolsd.core.model import ToolSpec
from toolsd.host import SourceLoadError
from toolsd.launch import ToolSettings


def settled(tools: Iterable[ToolSpec], settings: Mapping[str, ToolSettings]) -> tuple[ToolSpec, ...]:
    """The tools, each with its table `[source.NAME.tool.TOOL]` laid over it.

    Raises:
        SourceLoadError: a table names a tool that is not there, or two tools have one name.
    """
    by_name: dict[str, ToolSpec] = {}
    for tool in tools:
        if tool.name in by_name:
            raise SourceLoadError(f"the source declares {tool.name!r} twice; a tool's name is its own")
        by_name[tool.name] = tool
    unknown = [name for name in settings if name not in by_name]
    if unknown:
        raise SourceLoadError(f"settings for {', '.join(unknown)}; the source has: {', '.join(by_name)}")
    for name, said in settings.items():
        declared = by_name[name]
        by_name[name] = msgspec.structs.replace(
            declared,
            timeout=declared.timeout if said.timeout is None else said.timeout,
            idempotent=declared.idempotent if said.idempotent is None else said.idempotent,
        )
    return tuple(by_name.values())
