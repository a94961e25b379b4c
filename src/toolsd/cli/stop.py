"""`toolsd stop`: the end of the daemon."""

from __future__ import annotations

import click
import psutil

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
        connected.stop(now=now)
    try:
        psutil.Process(pid).wait(_FAREWELL)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired:
        raise ToolsdError(f"the daemon (pid {pid}) said goodbye but is still there", hint=f"kill -9 {pid}") from None
    if settings().json:
        output.json({"ok": True, "pid": pid})
    else:
        output.say(f"stopped (pid {pid})")
    return 0
