"""`toolsd reload`: have the daemon read its configuration again."""

from __future__ import annotations

from typing import Any

import click

from toolsd.cli import output
from toolsd.cli.app import global_options, json_option, settings
from toolsd.cli.connect import daemon

_MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "unchanged": (" ", "")}


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@json_option
@global_options
def command(dry_run: bool) -> int:
    """Have the daemon read its configuration again, and wait until the new one is in force.

    Changed sources are started first and then take over at once; unchanged ones keep their workers; what runs goes on.
    If anything is wrong with the new configuration, or a changed source does not start, nothing changes.
    """
    with daemon() as connected:
        changes = connected.reload(dry_run=dry_run)
    if settings().json:
        output.json({"ok": True, "published": not dry_run, "changes": changes})
        return 0
    _show(changes)
    different = sum(change["kind"] != "unchanged" for change in changes)
    output.say(f"{output.plural(different, 'stanza')} {'would change' if dry_run else 'changed'}")
    return 0


def _show(changes: list[dict[str, Any]]) -> None:
    for change in changes:
        mark, style = _MARKS[change["kind"]]
        line = f"{mark} [{change['stanza']}]"
        if change["stanza"] == "daemon":
            line += "  (takes effect when the daemon is started again)"
        output.styled((line, style))
        for key in change["keys"]:
            before, after = (value if value is not None else "(not set)" for value in (key["before"], key["after"]))
            output.say(f"    {key['key']}: {before} -> {after}")
