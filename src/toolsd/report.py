"""What a coordinator tells about itself: the bodies of the answers to `tools` and `ps`, as plain JSON values.

Owns the keys, which are stable. Reads the core's picture, the node's figures and the reception's list; changes
nothing. Ages are seconds, sizes are bytes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from toolsd.core.snapshot import ReplicaView, SourceView, TurnView
from toolsd.node import Figures
from toolsd.sandbox import tier

if TYPE_CHECKING:
    from toolsd.service import Service


def tools(service: Service) -> list[dict[str, Any]]:
    """Every tool that can be called, in the order of the configuration."""
    found: list[dict[str, Any]] = msgspec.to_builtins(service.core.tools())
    sandboxes = {source.name: _sandbox(source) for source in service.core.snapshot().sources}
    for tool in found:
        tool["sandbox"] = sandboxes.get(tool["source"], "none")
        tool["parameters"] = tool["parameters"] or {}
    return found


def ps(service: Service) -> dict[str, Any]:
    """The coordinator, its sources with their workers, the turns in flight, the clients, and totals."""
    now = asyncio.get_running_loop().time()
    picture = service.core.snapshot()
    figures = service.node.figures()
    return {
        "pid": service.welcome.pid,
        "version": service.welcome.toolsd,
        "incarnation": service.welcome.incarnation,
        "socket": str(service.place.path),
        "up": now - service.started,
        "state": picture.mode,
        "generation": picture.generation,
        "reloading": picture.reloading,
        "sources": [_source(source, figures, now) for source in picture.sources],
        "turns": [_turn(turn, now) for turn in picture.turns],
        "clients": service.reception.clients,
        "counters": msgspec.to_builtins(picture.counters) | {"failures": dict(picture.counters.failures)},
    }


def _source(view: SourceView, figures: dict[int, Figures], now: float) -> dict[str, Any]:
    shown = {name: getattr(view, name) for name in view.__struct_fields__ if name not in ("launch", "replicas")}
    shown["sandbox"] = _sandbox(view)
    failure = view.failure
    shown["failure"] = None if failure is None else {"code": failure.code, "message": failure.message}
    shown["workers"] = [_worker(replica, figures, now) for replica in view.replicas]
    return shown


def _sandbox(view: SourceView) -> str:
    """The tiers that confine a source, or `none`."""
    return "none" if view.launch is None else tier.name(view.launch.confinement)


def _worker(view: ReplicaView, figures: dict[int, Figures], now: float) -> dict[str, Any]:
    used = figures.get(view.worker) if view.worker is not None else None
    return {
        "replica": view.replica,
        "worker": view.worker,
        "pid": view.pid,
        "state": view.state,
        "age": None if view.since is None else now - view.since,
        "batches": view.batches,
        "capacity": view.capacity,
        "rss": used.rss if used else None,
        "cpu": used.cpu if used else None,
        "threads": used.threads if used else None,
    }


def _turn(view: TurnView, now: float) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(view)
    del shown["since"]
    shown["age"] = now - view.since
    return shown
