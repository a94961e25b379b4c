"""`toolsd sandbox`: what confines a source, and what this machine can do."""

from __future__ import annotations

import os
import tempfile

import click
import msgspec

from toolsd import config
from toolsd.cli import output
from toolsd.cli.app import global_options, json_option, settings
from toolsd.errors import EXIT_CONFIG, UsageError
from toolsd.launch import Confinement, Limits, MiB
from toolsd.sandbox import canary, cgroup, exhaust, places, seal, tier
from toolsd.sandbox.explain import explain

# Some limit of each kind, so that each is proven.
_TRIED = Limits(memory=512 * MiB, cpu_time=60, file_size=MiB, threads=8)


@click.group(options_metavar="")
def command() -> None:
    """Show what confines a source, or what this machine can confine."""


@command.command("explain")
@click.argument("source")
@json_option
@global_options
def explain_source(source: str) -> int:
    """Show what SOURCE may do, how much, and which mechanism keeps each line."""
    loaded = config.load(settings().config, allow_unsandboxed=True)
    spec = next((spec for spec in loaded.sources if spec.name == source), None)
    if spec is None:
        raise UsageError(f"there is no source {source!r}; there are {', '.join(s.name for s in loaded.sources)}")
    machine = tier.probe()
    lines = explain(spec.launch, machine)
    confinement = spec.launch.confinement
    gaps = tier.missing(machine, spec.launch.limits.processes, confinement.tiers)
    if confinement.mode == "off":
        gaps = []
    name = tier.name(confinement)
    if settings().json:
        output.json(
            {
                "source": source,
                "tier": name,
                "policy": msgspec.to_builtins(lines),
                "missing": [str(gap) for gap in gaps],
            }
        )
    else:
        output.say(f"{source}: tier {name}")
        output.table(("WHAT", "VALUE", "ENFORCED BY"), [(x.what, x.value, x.enforced_by or "-") for x in lines])
        for gap in gaps:
            output.complain(str(gap))
    return EXIT_CONFIG if gaps else 0


@command.command("check")
@json_option
@global_options
def check_machine() -> int:
    """Show what this machine can enforce, and prove it by attacking decoys from inside a sandbox."""
    machine = tier.probe()
    problems: list[tier.Missing | canary.Breach] = [*tier.missing(machine, 1)]
    if not problems:
        problems = [*_proof(machine)]
    groups = f"cgroup version {machine.cgroup}" if machine.cgroup else "polled"
    broken = {name for problem in problems for name in problem.names}
    limited = [str(gap) for gap in tier.missing(machine, 2)] if not problems else []
    if settings().json:
        said = {
            "ok": not problems,
            "problems": [str(problem) for problem in problems],
            "limited": limited,
            "tree": groups,
        }
        output.json(msgspec.to_builtins(machine) | said)
        return EXIT_CONFIG if problems else 0
    output.say(
        f"{machine.architecture}, Landlock ABI {machine.landlock or 'none'}, "
        f"seccomp filters: {'yes' if machine.seccomp else 'no'}, {'root' if machine.root else 'ordinary user'}"
    )
    rows = [(name, "NO" if name in broken else "proven", text) for name, text in tier.GUARANTEES.items()]
    proven = "NO" if "tree" in broken else f"proven ({groups})" if machine.cgroup else groups
    rows.append(("tree", proven, "memory of a worker and all it starts together ends at limits.memory"))
    output.table(("GUARANTEE", "HERE", "MEANING"), rows)
    for problem in (*problems, *limited):
        output.complain(str(problem))
    return EXIT_CONFIG if problems else 0


def _proof(machine: tier.Machine) -> tuple[canary.Breach, ...]:
    with tempfile.TemporaryDirectory(prefix="toolsd-check-") as room, tempfile.TemporaryDirectory() as scratch:
        sealed = seal.prepare(machine, Confinement(), own=((), ()), code=places.code(), scratch=scratch, worker=0)
        if sealed.uid is not None:
            os.chown(scratch, sealed.uid, sealed.uid)
        found = canary.prove(sealed, _TRIED, room, scratch)
    if not machine.cgroup:
        return found
    try:
        home = cgroup.Home(cgroup.find())
        group = home.make("canary", exhaust.GROUP_MEMORY, exhaust.GROUP_TASKS)
    except (cgroup.Unavailable, OSError) as error:
        return (*found, canary.Breach("tree", "making a control group", str(error)))
    try:
        return (*found, *canary.prove_group(group))
    finally:
        group.remove()
        home.close()
