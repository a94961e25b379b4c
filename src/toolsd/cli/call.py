"""`toolsd call`: one tool, one result."""

from __future__ import annotations

import sys

import click

from toolsd.cli import output, show
from toolsd.cli.app import global_options, json_option, seconds, settings
from toolsd.cli.connect import client, complete_tools
from toolsd.errors import EXIT_FAILED, UsageError


@click.command()
@click.argument("tool", shell_complete=complete_tools)
@click.argument("arguments", metavar="[JSON]", default="{}")
@click.option("--session", metavar="NAME", help="Pin the call to the replica that holds this session.")
@click.option("--deadline", type=seconds, metavar="DURATION", help="How long it may take, such as 30s.")
@json_option
@global_options
def command(tool: str, arguments: str, session: str | None, deadline: float | None) -> int:
    """Run TOOL with the arguments JSON, an object (- reads it from stdin).

    Asks the daemon; with --config no daemon is needed. The exit status is 1 if the call ends in an error.
    """
    if arguments == "-":
        arguments = _stdin()
    with client() as connected:
        result = connected.call(tool, arguments, session=session, deadline=deadline, on_report=show.reporter())
    if settings().json:
        output.json({"ok": result.ok, **show.result_json(result)})
    elif result.ok:
        output.say(result.text)
    else:
        assert result.error is not None
        output.complain(f"{result.error.code}: {result.text}")
    return 0 if result.ok else EXIT_FAILED


def _stdin() -> str:
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin is not UTF-8 text (byte {error.start})") from error
    if not text.strip():
        raise UsageError("stdin is empty", hint="pipe the arguments into it as a JSON object")
    return text
