"""Who may start: for each worker either a seal that was proven here, or a refusal that says what is missing.

Owns the machine's answers and the proofs made so far. Lives in the forkserver, which has one thread.
"""

from __future__ import annotations

import os

from toolsd.launch import Launch, Limits
from toolsd.sandbox import canary, cgroup, exhaust, places, tier
from toolsd.sandbox.canary import Breach
from toolsd.sandbox.cgroup import Group
from toolsd.sandbox.plan import Plan
from toolsd.sandbox.seal import Seal, prepare
from toolsd.sandbox.seccomp import Profile


class Refusal(Exception):
    """A worker must not start: the text names the guarantee, the kernel's answer and the remedy."""


_OFF = (
    'To run this source unconfined all the same, set mode = "off" in its permissions and start the daemon with '
    "--allow-unsandboxed"
)


class Gate:
    def __init__(self) -> None:
        self._machine = tier.probe()
        self._proofs: dict[tuple[Profile, bool, frozenset[int], Limits], tuple[Breach, ...]] = {}
        self._groups: tuple[Breach, ...] | None = None  # the proof of control groups, when one was needed

    def admit(self, source: str, worker: int, launch: Launch, plan: Plan) -> Seal | None:
        """The seal for a worker, proven; the scratch directory is made its own. None when its mode is off.

        Raises:
            Refusal: this machine cannot confine it.
        """
        if launch.confinement.mode == "off":
            return None
        gaps = tier.missing(self._machine, launch.limits.processes)
        if gaps:
            raise Refusal(f"source {source!r} cannot be sandboxed: {'; '.join(map(str, gaps))}. {_OFF}")
        room = os.path.dirname(plan.scratch)
        seal = prepare(
            self._machine,
            launch.confinement,
            own=places.own_files(launch.path, launch.directory, room),
            code=() if launch.program else places.code(),
            scratch=plan.scratch,
            worker=worker,
            processes=launch.limits.processes,
            program=places.executed(launch.program[0], plan.env["PATH"]) if launch.program else (),
        )
        if seal.uid is not None:
            os.chown(plan.scratch, seal.uid, seal.uid)
        breaches = self._proof(seal, plan, room)
        if breaches:
            raise Refusal(f"source {source!r} cannot be sandboxed: {'; '.join(map(str, breaches))}. {_OFF}")
        return seal

    def _proof(self, seal: Seal, plan: Plan, room: str) -> tuple[Breach, ...]:
        """Workers that differ only in what they are granted share a proof: no grant covers the decoys."""
        kind = (seal.profile, seal.uid is not None, seal.keep, plan.limits)
        if kind not in self._proofs:
            self._proofs[kind] = canary.prove(seal, plan.limits, room, plan.scratch)
        if plan.group is None:
            return self._proofs[kind]
        if self._groups is None:
            self._groups = _prove_groups(plan.group)
        return self._proofs[kind] + self._groups


def _prove_groups(beside: Group) -> tuple[Breach, ...]:
    """One proof holds for all groups of a daemon: they are made in the same place by the same files."""
    try:
        group = cgroup.make(beside, "canary", exhaust.GROUP_MEMORY, exhaust.GROUP_TASKS)
    except OSError as error:
        return (Breach("tree", "making a control group", f"{error.filename}: {error.strerror}"),)
    try:
        return canary.prove_group(group)
    finally:
        group.remove()
