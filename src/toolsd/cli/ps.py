"""`toolsd ps`: what the daemon is doing."""

from __future__ import annotations

from typing import Any

import click

from toolsd.cli import output
from toolsd.cli.app import global_options, json_option, settings
from toolsd.cli.connect import daemon

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


@click.command()
@json_option
@global_options
def command() -> int:
    """Show the daemon's sources, their workers, and the turns that run."""
    with daemon() as connected:
        state = connected.ps()
    if settings().json:
        output.json(state)
        return 0
    output.say(
        f"toolsd {state['version']}, {state['state']}, pid {state['pid']}, up {age(state['up'])}, "
        f"socket {state['socket']}"
    )
    output.say()
    output.table(
        (
            "SOURCE",
            "STATE",
            "SANDBOX",
            "TOOLS>",
            "QUEUED>",
            "RESTARTS>",
            "PID>",
            "WORKER",
            "BATCHES>",
            "RSS>",
            "CPU>",
            "AGE>",
        ),
        [row for source in state["sources"] for row in _rows(source)],
    )
    for source in state["sources"]:
        if source["failure"]:
            output.say()
            output.styled((f"{source['name']}: ", "bold"), (source["failure"]["code"], "red"))
            output.say(f"   {source['failure']['message']}")
    if state["turns"]:
        output.say()
        output.table(
            ("TURN", "STATE", "CALLS>", "LEFT>", "RUNS IN", "SESSION", "AGE>"),
            [
                (
                    turn["turn"],
                    turn["state"],
                    str(turn["calls"]),
                    str(turn["left"]),
                    ", ".join(turn["sources"]) or "-",
                    turn["session"] or "-",
                    age(turn["age"]),
                )
                for turn in state["turns"]
            ],
        )
    return 0


def _rows(source: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row a worker; the source itself is named in the first."""
    counts = (str(source[name]) for name in ("tools", "queued", "restarts"))
    own = (source["name"], source["state"], source["sandbox"], *counts)
    rows: list[tuple[str, ...]] = []
    for worker in source["workers"] or [None]:
        rows.append((*(own if not rows else ("",) * len(own)), *_worker(worker)))
    return rows


def _worker(worker: dict[str, Any] | None) -> tuple[str, ...]:
    if worker is None or worker["pid"] is None:
        return ("-", "-" if worker is None else worker["state"], "-", "-", "-", "-")
    return (
        str(worker["pid"]),
        worker["state"],
        f"{worker['batches']}/{worker['capacity']}",
        "-" if worker["rss"] is None else f"{worker['rss'] / 1024**2:.1f}M",
        "-" if worker["cpu"] is None else f"{worker['cpu']:.1f}s",
        "-" if worker["age"] is None else age(worker["age"]),
    )


def age(seconds: float) -> str:
    """A duration for people: two units at most."""
    whole = int(seconds)
    for length, unit in _UNITS:
        if whole >= length:
            rest = whole % length
            smaller = {"d": (3600, "h"), "h": (60, "m"), "m": (1, "s")}[unit]
            return f"{whole // length}{unit}{rest // smaller[0]}{smaller[1]}"
    return f"{whole}s"
