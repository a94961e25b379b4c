"""A kind of source for tests of the worker path: its tools do what their arguments say, good or bad.

Workers load it as `toolsd_workers.probe`; `launch.options` says how (`load`: Python, `asynchronous`: which loop).
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable
from typing import Any

from toolsd.core.model import ToolSpec
from toolsd.host import HostBatch, HostCall, Manifest, SourceLoadError
from toolsd.launch import Launch


def make_host(launch: Launch) -> Any:
    return Probe(launch)


class Probe:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.options = launch.options
        self.seen = 0

    def load(self) -> Manifest:
        exec(self.options.get("load", ""), {"SourceLoadError": SourceLoadError})
        asynchronous = bool(self.options.get("asynchronous"))
        names = sorted(name for name in dir(self) if name.startswith("do_"))
        return Manifest(tuple(ToolSpec(name[3:]) for name in names), asynchronous, asynchronous)

    def start(self) -> Awaitable[None] | None:
        exec(self.options.get("start", ""))
        return asyncio.sleep(0) if self.options.get("asynchronous") else None

    def close(self) -> Awaitable[None] | None:
        exec(self.options.get("close", ""), {"time": time})
        return None

    def run(self, batch: HostBatch) -> Awaitable[None] | None:
        self.seen += 1
        if self.options.get("asynchronous"):
            return self.run_all(batch)
        for call in batch.calls:
            batch.started(call.slot)
            outcome = getattr(self, f"do_{call.tool}")(call.arguments, batch, call)
            if outcome is not None:
                batch.finished(call.slot, b"t" + outcome)
        return None

    async def run_all(self, batch: HostBatch) -> None:
        async def one(call: HostCall) -> None:
            batch.started(call.slot)
            outcome = getattr(self, f"do_{call.tool}")(call.arguments, batch, call)
            if asyncio.iscoroutine(outcome):
                outcome = await outcome
            batch.finished(call.slot, b"t" + outcome)

        await asyncio.gather(*map(one, batch.calls))

    # --- tools ------------------------------------------------------------------------------------------------------

    def do_echo(self, text: str, batch: HostBatch, call: HostCall) -> bytes:
        return text.encode()

    def do_sleep(self, seconds: str, batch: HostBatch, call: HostCall) -> Any:
        if self.options.get("asynchronous"):
            return self.doze(float(seconds))
        time.sleep(float(seconds))
        return b"slept"

    async def doze(self, seconds: float) -> bytes:
        await asyncio.sleep(seconds)
        return b"dozed"

    def do_run(self, code: str, batch: HostBatch, call: HostCall) -> bytes | None:
        """Any Python: `out` is the outcome."""
        scope: dict[str, Any] = {
            "os": os, "sys": sys, "signal": signal, "time": time, "threading": threading, "ctypes": ctypes,
            "json": json, "asyncio": asyncio, "batch": batch, "call": call, "host": self, "out": "",
        }  # fmt: skip
        exec(code, scope)
        return None if scope["out"] is None else str(scope["out"]).encode()

    def do_nothing(self, text: str, batch: HostBatch, call: HostCall) -> None:
        return None
