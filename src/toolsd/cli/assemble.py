"""`toolsd assemble`: what calls are in a recorded stream, and what is wrong with it. Runs nothing."""

from __future__ import annotations

import click

from toolsd.cli import chunks, output
from toolsd.cli.app import F, global_options, json_option, settings
from toolsd.errors import EXIT_FAILED, UsageError
from toolsd.streams import FORMATS, Assembly, CompletionAssembler


def stream_options(command: F) -> F:
    """What `assemble` and `turn` take to read a stream."""
    for option in (
        click.option("--case", metavar="ID", help="Which one, if FILE holds several recorded streams."),
        click.option("--strict", is_flag=True, help="Repair nothing."),
        click.option(
            "--format",
            "format_",
            type=click.Choice(["auto", *FORMATS]),
            default="auto",
            help="The provider's format.",
            show_default=True,
        ),
        click.argument("file", type=click.Path(allow_dash=True)),
    ):
        command = option(command)
    return command


def not_a_stream(file: str) -> UsageError:
    """The error for a file in which nothing was recognised."""
    name = "stdin" if file == "-" else file
    return UsageError(
        f"{name} holds no completion stream that toolsd knows",
        hint=f"expected JSON lines, server-sent events or a JSON array of {', '.join(FORMATS)} chunks",
    )


@click.command()
@stream_options
@click.option("--explain", is_flag=True, help="Show where each fragment went, and by which rule.")
@json_option
@global_options
def command(file: str, format_: str, strict: bool, case: str | None, explain: bool) -> int:
    """Show the calls in the recorded stream FILE (- is stdin), as they would be run.

    The exit status is 1 if the completion or one of its calls is defective.
    """
    assembler = CompletionAssembler(format_, strict=strict, explain=explain)
    for chunk in chunks.read(file, case):
        assembler.feed(chunk)
    assembly = assembler.finish()
    if assembly.format is None and "stream_error" not in assembly.defects:
        raise not_a_stream(file)
    if settings().json:
        output.json(assembly.to_json())
    else:
        _show(assembly)
    return EXIT_FAILED if assembly.defects or any(call.defects for call in assembly.calls) else 0


def _show(assembly: Assembly) -> None:
    for step in assembly.steps:
        place = "" if step.call is None else f" -> call {step.call}"
        output.styled((f"chunk {step.chunk}{place}: ", "dim"), step.what, (f"  ({step.why})", "dim"))
    for call in assembly.calls:
        output.styled(
            (f"{call.index}  ", "bold"), (call.name or "(no name)", "bold cyan"), (f"  {call.id or '(no id)'}", "dim")
        )
        output.styled(f"   {call.arguments}")
        for defect in call.defects:
            output.styled("   ", ("defect ", "red"), defect)
        for note in call.notes:
            output.styled("   ", ("note ", "yellow"), note.removeprefix("note:"))
    if not assembly.calls:
        output.say("no calls")
    for defect in assembly.defects:
        output.styled(("defect ", "red"), f"{defect} (the whole completion: none of its calls would run)")
    summary = [f"format {assembly.format}", f"finish reason {assembly.finish_reason or 'none'}"]
    if assembly.dropped_deltas:
        summary.append(f"{assembly.dropped_deltas} deltas dropped")
    output.styled((", ".join(summary), "dim"))
