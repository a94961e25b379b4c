"""Tools as the `tools=` value of a request to a provider, and what a model will not be told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from toolsd.conversation.formats import FORMATS, known
from toolsd.conversation.schemas import Unofferable


class Offered(Protocol):
    """What an offer needs of a tool. `parameters` is the JSON schema of its arguments."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> dict[str, Any]: ...


class Cut(msgspec.Struct, frozen=True):
    """Something that a provider is not told of a tool. `path` is the place in its schema, `$` the whole of it."""

    tool: str
    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.path}: {self.what}"


class Offer(msgspec.Struct, frozen=True):
    """`tools` is the value to give to the provider. `names` has, for each name that had to be changed, the tool of it:
    `{"fs_read_k3zq7a": "fs.read"}`. `cuts` is everything that was left out."""

    format: str
    tools: list[dict[str, Any]]
    names: dict[str, str]
    cuts: tuple[Cut, ...]


def offer(tools: Sequence[Offered], format: str) -> Offer:
    """`tools` in the shape that the provider of `format` takes.

    Raises:
        UsageError: an unknown format.
    """
    shape = FORMATS[known(format)]
    taken = {tool.name for tool in tools if shape.names.allows(tool.name)}
    declared: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    cuts: list[Cut] = []
    for tool in tools:
        trimmer = shape.trimmer(tool.parameters)
        try:
            schema = trimmer.whole()
        except (Unofferable, RecursionError) as error:
            why = error if isinstance(error, Unofferable) else "its schema is nested too deeply"
            cuts.append(Cut(tool.name, "$", f"the tool is left out: {why}"))
            continue
        name = shape.names.fit(tool.name, taken)
        if name != tool.name:
            names[name] = tool.name
            taken.add(name)
        description, longest = tool.description, shape.description_max
        if longest is not None and len(description) > longest:
            description = description[: longest - 3].rstrip() + "..."
            cuts.append(Cut(tool.name, "$", f"the description is cut to {longest} characters"))
        cuts += [Cut(tool.name, path, what) for path, what in trimmer.cuts]
        declared.append(shape.declare(name, description, schema))
    return Offer(format, shape.listed(declared), names, tuple(cuts))
