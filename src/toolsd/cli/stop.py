"""`toolsd stop`: the end of the daemon."""

from __future__ import annotations

import os
import select

import click

from toolsd.cli import output
from toolsd.cli.app import global_options, json_option, settings
from toolsd.cli.connect import daemon
from toolsd.errors import ToolsdError

# Beyond the drain, which the daemon bounds itself: how long its process may take to end. Seconds.
_FAREWELL = 30.0


@click.command()
@click.option("--now", is_flag=True, help="Do not let running turns finish.")
@json_option
@global_options
def command(now: bool) -> int:
    """Stop the daemon and wait until it is gone. Running turns may finish first."""
    with daemon() as connected:
        pid = int(connected.ps()["pid"])
        # Opened while it lives, so that it cannot come to mean another process (pidfd_open(2)).
        process = os.pidfd_open(pid)
        connected.stop(now=now)
    try:
        if not select.select([process], [], [], _FAREWELL)[0]:
            raise ToolsdError(f"the daemon (pid {pid}) said goodbye but is still there", hint=f"kill -9 {pid}")
    finally:
        os.close(process)
    if settings().json:
        output.json({"ok": True, "pid": pid})
    else:
        output.say(f"stopped (pid {pid})")
    return 0
