"""How a program uses toolsd: `AsyncClient`, and `Client`, which is made from it.

Layout
    async_client, async_turn    the source of truth
    sync_client, sync_turn      made from them by scripts/unasync
    async_link, sync_link       the two links, by hand: what differs between the worlds
    routes                      which message is for whom (pure)
    calls, views                what goes in, what comes out besides results
"""

from toolsd.client.async_client import AsyncClient
from toolsd.client.async_turn import AsyncTurn
from toolsd.client.sync_client import Client
from toolsd.client.sync_turn import Turn
from toolsd.client.views import CallReport, Tool

__all__ = ["AsyncClient", "AsyncTurn", "CallReport", "Client", "Tool", "Turn", "connect", "local"]

connect = Client.connect
local = Client.local
