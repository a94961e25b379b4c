"""How a program uses toolsd: `AsyncClient`, and `Client`, which is made from it.

Names are loaded when they are first used: a blocking client does not pay for asyncio.

Layout
    async_client, async_turn    the source of truth
    sync_client, sync_turn      made from them by scripts/unasync
    async_link, sync_link       the two links, by hand: what differs between the worlds
    routes                      which message is for whom (pure)
    calls, views                what goes in, what comes out besides results
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolsd.client.async_client import AsyncClient
    from toolsd.client.async_turn import AsyncTurn
    from toolsd.client.sync_client import Client
    from toolsd.client.sync_turn import Turn
    from toolsd.client.views import CallReport, Tool

    connect = Client.connect
    local = Client.local

__all__ = ["AsyncClient", "AsyncTurn", "CallReport", "Client", "Tool", "Turn", "connect", "local"]

_HOME = {
    "AsyncClient": "async_client",
    "AsyncTurn": "async_turn",
    "Client": "sync_client",
    "Turn": "sync_turn",
    "CallReport": "views",
    "Tool": "views",
}


def __getattr__(name: str) -> Any:
    if name in ("connect", "local"):
        value = getattr(__getattr__("Client"), name)
    elif name in _HOME:
        value = getattr(import_module(f"toolsd.client.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
