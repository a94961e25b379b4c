"""`toolsd turn`: a recorded stream, played as a model would stream it; its calls run."""

from __future__ import annotations

import click

from toolsd.cli import chunks, output, show
from toolsd.cli.app import global_options, json_option, seconds, settings
from toolsd.cli.assemble import stream_options
from toolsd.cli.connect import client
from toolsd.errors import EXIT_FAILED


@click.command()
@stream_options
@click.option("--session", metavar="NAME", help="Pin the turn to the replicas that hold this session.")
@click.option("--deadline", type=seconds, metavar="DURATION", help="How long all calls may take, such as 30s.")
@click.option("--run-defective", is_flag=True, help="Run what is there of a damaged completion.")
@json_option
@global_options
def command(
    file: str,
    *,
    format_: str,
    strict: bool,
    case: str | None,
    session: str | None,
    deadline: float | None,
    run_defective: bool,
) -> int:
    """Play the recorded stream FILE (- is stdin) and run its calls.

    Asks the daemon; with --config no daemon is needed. The exit status is 1 if the turn or one of its calls fails.
    """
    with client() as connected:
        turn = connected.turn(
            session=session,
            deadline=deadline,
            on_defect="run" if run_defective else "refuse",
            on_report=show.reporter(),
            format=format_,
            strict=strict,
        )
        with turn:
            for chunk in chunks.read(file, case):
                turn.feed(chunk)
            results = turn.finish()
    if settings().json:
        output.json(show.turn_json(results, turn.batches))
    else:
        show.results(results, turn.batches)
    return 0 if all(result.ok for result in results) else EXIT_FAILED
