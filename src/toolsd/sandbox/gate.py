"""Who may start: for each worker either a seal that was proven here, or a refusal that says what is missing.

Owns the machine's answers and the proofs made so far. Lives in the forkserver, which has one thread.
"""

from __future__ import annotations

import os

from toolsd.launch import Launch
from toolsd.sandbox import canary, places, tier
from toolsd.sandbox.canary import Breach
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
        self._proofs: dict[tuple[Profile, bool, frozenset[int]], tuple[Breach, ...]] = {}

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
        breaches = self._proof(seal, room)
        if breaches:
            raise Refusal(f"source {source!r} cannot be sandboxed: {'; '.join(map(str, breaches))}. {_OFF}")
        return seal

    def _proof(self, seal: Seal, room: str) -> tuple[Breach, ...]:
        """Workers that differ only in what they are granted share a proof: no grant covers the decoys."""
        kind = (seal.profile, seal.uid is not None, seal.keep)
        if kind not in self._proofs:
            self._proofs[kind] = canary.prove(seal, room)
        return self._proofs[kind]
