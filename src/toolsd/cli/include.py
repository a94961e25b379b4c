"""`toolsd include`: where the header for sources in shared libraries is."""

from __future__ import annotations

from importlib import import_module

import click

from toolsd.cli import output


@click.command()
def command() -> None:
    """Print the folder of toolsd_source.h.

    For a compiler: cc -shared -fPIC -I"$(toolsd include)" -o tools.so tools.c
    """
    output.say(import_module("toolsd_workers.native").INCLUDE)
