"""`toolsd check`: the configuration and every source in it, before anything depends on them.

Each source is started once in a real worker, by a coordinator of its own that nobody else can reach.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import click
import msgspec

from toolsd import config, report
from toolsd.cli import output
from toolsd.cli.app import global_options, json_option, settings
from toolsd.cli.output import plural
from toolsd.client.views import Tool, tools_of
from toolsd.config import Config, ConfigMistakes, Mistake
from toolsd.conversation import FORMATS, Offer, offer
from toolsd.core.model import Restart, SourceSpec
from toolsd.core.snapshot import SourceView
from toolsd.errors import EXIT_CONFIG
from toolsd.runtime import Place
from toolsd.service import Service
from toolsd.telemetry import logs


class Finding(msgspec.Struct, frozen=True):
    """What came of one source: its tools, or why it has none. `detail` is a traceback, or output and stacks."""

    name: str
    tools: tuple[str, ...]
    mistake: Mistake | None = None
    detail: str | None = None


@click.command()
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(list(FORMATS)),
    help="Show each thing that providers with this format are not told of the tools; may be given more than once.",
)
@json_option
@global_options
def command(formats: tuple[str, ...]) -> int:
    """Check the configuration, start every source once, and show every effective value and where it comes from.

    Tools that a model provider takes only under another name or with less of their schema are counted, by format;
    --format shows each of these changes. They are no mistakes: arguments are checked against the whole schema when a
    tool is called. The exit status is 78 if anything is wrong.
    """
    try:
        loaded = config.load(settings().config)
    except ConfigMistakes as error:
        if not settings().json:
            raise
        output.json(
            {"ok": False, "file": os.path.abspath(error.file), "mistakes": msgspec.to_builtins(error.mistakes)}
            | _NOTHING
        )
        return EXIT_CONFIG
    if settings().verbosity > 0:
        logs.to_stderr(settings().verbosity - 1)
    else:
        logs.silent()  # what went wrong is in the findings
    received: list[int] = []
    try:
        findings, tools = asyncio.run(_look(loaded, received))
    except asyncio.CancelledError:
        output.complain("interrupted")
        return 128 + received[0]
    offers = [offer(tools, name) for name in formats or FORMATS]
    mistakes = [finding.mistake for finding in findings if finding.mistake is not None]
    if settings().json:
        output.json(
            {
                "ok": not mistakes,
                "file": loaded.file,
                "mistakes": msgspec.to_builtins(mistakes),
                "sources": [
                    {"name": f.name, "ok": f.mistake is None, "tools": list(f.tools), "detail": f.detail}
                    for f in findings
                ],
                "settings": msgspec.to_builtins(loaded.settings),
                "offers": {
                    made.format: {"names": made.names, "cuts": msgspec.to_builtins(made.cuts)} for made in offers
                },
            }
        )
    else:
        _show(loaded, findings, offers, each=bool(formats))
    return EXIT_CONFIG if mistakes else 0


_NOTHING: dict[str, Any] = {"sources": [], "settings": [], "offers": {}}


async def _look(loaded: Config, received: list[int]) -> tuple[list[Finding], list[Tool]]:
    """Start every source once: a finding for each, and all tools there are.

    A signal cancels this, once, and is put into `received`.
    """
    _cancel_on_signal(received)
    seen: list[tuple[tuple[SourceView, ...], list[dict[str, Any]]]] = []

    def ready(service: Service) -> None:
        seen.append((service.core.snapshot().sources, report.tools(service)))
        service.stop()

    with Place.private() as place:
        await Service([_once(spec) for spec in loaded.sources], place, on_looked=ready).run()
    sources, tools = seen[0]
    return [_finding(loaded, source, tools) for source in sources], tools_of(tools)


def _cancel_on_signal(received: list[int]) -> None:
    """An exception out of a signal handler could come anywhere in the loop, and what it skips would stay behind."""
    task = asyncio.current_task()
    assert task is not None

    def on_signal(number: int) -> None:
        received.append(number)
        if len(received) == 1:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)


def _once(spec: SourceSpec) -> SourceSpec:
    """The source as it is started here: one worker, one attempt."""
    once = Restart(max=0, cool_down=spec.start_timeout * 10)
    return msgspec.structs.replace(spec, replicas=1, start="lazy", required=False, restart=once)


def _finding(loaded: Config, source: SourceView, tools: list[dict[str, Any]]) -> Finding:
    names = tuple(tool["name"] for tool in tools if tool["source"] == source.name)
    failure = source.failure
    if failure is None:
        return Finding(source.name, names)
    key = f"source.{source.name}.path"
    line = next((setting.line for setting in loaded.settings if setting.key == key), None)
    evidence = failure.evidence
    detail = None
    if evidence is not None:
        said = filter(None, (evidence.stderr_tail, evidence.stacks))
        detail = evidence.traceback or "\n".join(said) or None
    return Finding(source.name, names, Mistake(line, key, failure.message), detail)


def _show(loaded: Config, findings: list[Finding], offers: list[Offer], *, each: bool) -> None:
    file = config.shown_name(loaded.file)
    output.table(
        ("KEY", "VALUE", "FROM"),
        [(s.key, s.value, s.origin if s.line is None else f"{s.origin}, line {s.line}") for s in loaded.settings],
    )
    output.say()
    for finding in findings:
        if finding.mistake is None:
            output.styled((f"{finding.name}: ", "bold"), ("ok", "green"), f", {', '.join(finding.tools)}")
    for made in offers:
        _show_offer(made, each=each)
    wrong = [finding for finding in findings if finding.mistake is not None]
    for finding in wrong:
        assert finding.mistake is not None
        output.complain(finding.mistake.describe(file))
        if finding.detail and settings().verbosity > 0:
            output.note(finding.detail)
    if wrong:
        more = "" if settings().verbosity > 0 else " (-v shows tracebacks)"
        output.complain(f"{plural(len(wrong), 'source')} of {len(findings)} cannot be used{more}")
    else:
        output.styled((f"{file} is good", "bold green"))


def _show_offer(made: Offer, *, each: bool) -> None:
    """What a provider is not told: every single thing, or how many there are."""
    if each:
        output.styled((f"{made.format}:", "bold"), "" if made.names or made.cuts else " takes everything as it is")
        for there, tool in made.names.items():
            output.say(f"  {tool}: is called {there} there")
        for cut in made.cuts:
            output.say(f"  {cut}")
    elif made.names or made.cuts:
        changes = [plural(len(made.names), "changed name")] if made.names else []
        changes += [plural(len(made.cuts), "cut")] if made.cuts else []
        how = f" (--format {made.format} shows them)"
        output.styled((f"{made.format}: ", "bold"), " and ".join(changes), (how, "dim"))
