"""`toolsd tools`: what can be called."""

from __future__ import annotations

import json

import click

from toolsd.cli import output
from toolsd.cli.app import global_options, json_option, settings
from toolsd.cli.connect import client, complete_tools


@click.command()
@click.argument("names", nargs=-1, metavar="[TOOL]...", shell_complete=complete_tools)
@click.option("--schema", is_flag=True, help="Show the JSON schema of the arguments.")
@json_option
@global_options
def command(names: tuple[str, ...], schema: bool) -> int:
    """List the tools of all sources, in the order of the configuration; TOOL... picks some.

    Asks the daemon; with --config no daemon is needed.
    """
    with client() as connected:
        found = connected.tools()
    tools = [tool for tool in found if not names or tool.name in names]
    missing = set(names) - {tool.name for tool in tools}
    if settings().json:
        output.json(
            [
                {
                    "name": tool.name,
                    "source": tool.source,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "idempotent": tool.idempotent,
                    "timeout": tool.timeout,
                    "sandbox": tool.sandbox,
                }
                for tool in tools
            ]
        )
    elif schema:
        for tool in tools:
            output.styled((tool.name, "bold cyan"), (f"  {tool.source}", "dim"))
            output.say(tool.description)
            output.say(json.dumps(tool.parameters, indent=2, ensure_ascii=False) + "\n")
    elif tools:
        rows = [(tool.name, tool.source, tool.description.partition("\n")[0]) for tool in tools]
        output.table(("TOOL", "SOURCE", "DESCRIPTION"), rows)
    if missing:
        output.complain(f"there is no tool {', '.join(sorted(missing))}")
    elif not tools:
        output.note("no source has a tool yet")
    return 1 if missing else 0
