"""Generations of the registry: published whole, or not at all.

Owns which generation is current and which one is being prepared. Must not know turns beyond those that wait for names.

Theory of operation. The first generation is published as it comes, with nothing described: its sources are started
in parallel and its index grows. A turn that names a tool nobody declares yet waits while a first discovery goes on.

A reload is prepared beside the current generation. Sources whose spec is equal are shared, processes and all; each
changed or new one gets a first start. When all of these are described and no *new* collision appears, the whole
generation becomes current; when one fails, or collides, the reload is refused, its workers are sent away, and nothing
has changed. A second reload replaces one that is still being prepared. What a reload left out keeps its workers until
the turns that may still use them have ended.
"""

from __future__ import annotations

from toolsd.core.events import RegistryPublished
from toolsd.core.fleet import Fleet
from toolsd.core.instructions import ReloadEnded
from toolsd.core.model import SourceSpec, ToolSpec
from toolsd.core.planning import Planning
from toolsd.core.pool import Pool
from toolsd.core.registry import Generation
from toolsd.core.restart import Jitter
from toolsd.core.shared import Shared
from toolsd.core.turns import Turns
from toolsd.errors import Failure


class Publishing:
    """See the module. Before the first publication, `current` is the empty generation 0."""

    def __init__(self, shared: Shared, fleet: Fleet, turns: Turns, planning: Planning, jitter: Jitter | None) -> None:
        self._shared = shared
        self._fleet = fleet
        self._turns = turns
        self._planning = planning
        self._jitter = jitter
        self._numbers = 0
        self.current = Generation(0, ())
        self.pending: Generation | None = None

    def on_published(self, event: RegistryPublished, now: float) -> None:
        names = [spec.name for spec in event.sources]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            self._refused(f"two sources have the name {twice!r}")
            return
        if self._turns.draining:
            self._refused("the coordinator is stopping")
            return
        superseded, self.pending = self.pending, None
        if superseded is not None:
            self._refused("another reload came before it was done")
        self._numbers += 1
        generation = Generation(self._numbers, tuple(self._pool(spec, superseded) for spec in event.sources))
        for pool in generation.pools:
            pool.generations.append(generation)
        if superseded is not None:
            self._release(superseded, now)
        if self.current.number == 0:
            self._publish(generation, now)
            self._shared.inform("registry published", generation=generation.number, sources=len(generation.pools))
            return
        self.pending = generation
        for pool in self._fresh(generation):
            self._fleet.fill(pool, now)
        self._conclude(now)

    def drain(self, now: float) -> None:
        """The coordinator is stopping: what is being prepared comes no more into force."""
        generation, self.pending = self.pending, None
        if generation is not None:
            self._refused("the coordinator is stopping")
            self._release(generation, now)

    def described(self, pool: Pool, tools: tuple[ToolSpec, ...], now: float) -> None:
        """A source was started for the first time and declared its tools."""
        pool.tools = tools
        pool.index = {tool.name: tool for tool in tools}
        pool.discovery = "described"
        for generation in list(pool.generations):
            if generation is self.pending:
                continue
            if any(name in generation.wanted for name in pool.index):
                pool.keep = True
            refused = generation.build()
            if generation is self.current:
                self._refuse(refused, now)
            self._resolve(generation, now)
        self._conclude(now)
        if self.current in pool.generations:
            self._fleet.rest(pool, now)

    def not_described(self, pool: Pool, now: float) -> None:
        """The first start of a source failed."""
        for generation in list(pool.generations):
            if generation is not self.pending:
                self._resolve(generation, now)
        self._conclude(now)

    def unheld(self, generation: Generation, now: float) -> None:
        """No turn looks names up in `generation` any more."""
        if generation is not self.current and generation is not self.pending:
            self._release(generation, now)

    def _pool(self, spec: SourceSpec, superseded: Generation | None) -> Pool:
        for generation in (self.current, superseded):
            for pool in generation.pools if generation is not None else ():
                if pool.spec == spec:
                    return pool
        pool = Pool(spec, self._jitter)
        self._fleet.adopt(pool)
        return pool

    def _fresh(self, generation: Generation) -> list[Pool]:
        return [pool for pool in generation.pools if self.current not in pool.generations]

    def _conclude(self, now: float) -> None:
        """Publish or refuse the generation that is being prepared, if that can be told now."""
        generation = self.pending
        if generation is None:
            return
        fresh = self._fresh(generation)
        failed = next((pool for pool in fresh if pool.discovery == "failed"), None)
        why = None
        if failed is not None:
            why = failed.failure.message if failed.failure is not None else f"source {failed.name!r} did not start"
        elif any(pool.discovery == "pending" for pool in fresh):
            return
        else:
            refused = generation.build()
            new = next((failure for pool, failure in refused.items() if pool.refused is None), None)
            if new is None:
                self._publish(generation, now)
                self._shared.inform("registry published", generation=generation.number, sources=len(generation.pools))
                self._shared.emit(ReloadEnded(generation.number))
                return
            why = new.message
        self.pending = None
        self._refused(why)
        self._release(generation, now)

    def _publish(self, generation: Generation, now: float) -> None:
        before, self.current, self.pending = self.current, generation, None
        predecessors = {pool.name: pool for pool in before.pools if pool not in generation.pools}
        for pool in generation.pools:
            pool.wide = True
            if before in pool.generations:
                pool.restarts.forgive()
            elif pool.name in predecessors:
                predecessor = predecessors[pool.name]
                # A session that had its state in the old workers must hear that it is lost.
                pool.pins = predecessor.pins.copy()
                pool.keep = pool.keep or predecessor.is_up()
        self._refuse(generation.build(), now)
        if not before.holders:
            self._release(before, now)
        for pool in generation.pools:
            if pool.refused is None:
                self._fleet.fill(pool, now)
                if pool not in before.pools and pool.discovery == "described":
                    self._fleet.rest(pool, now)

    def _refused(self, why: str) -> None:
        self._shared.warn(f"reload refused, nothing was changed: {why}", generation=self.current.number)
        if self.current.number:
            self._shared.emit(ReloadEnded(self.current.number, why))

    def _refuse(self, refused: dict[Pool, Failure], now: float) -> None:
        """Keep the losers of collisions out of the current generation, and let back in who collides no more."""
        for pool in self.current.pools:
            failure = refused.get(pool)
            if failure is not None:
                if pool.refused is None:
                    self._shared.warn(failure.message, source=pool.name)
                pool.refused = pool.failure = failure
                self._fleet.dismiss(pool, now)
            elif failure is None and pool.refused is not None:
                pool.refused = pool.failure = None

    def _resolve(self, generation: Generation, now: float) -> None:
        for turn in list(generation.waiting.values()):
            if turn.state in ("waiting", "running"):
                self._planning.resolve(turn, generation, now)

    def _release(self, generation: Generation, now: float) -> None:
        """Nobody uses `generation` any more: its sources that no other one has go."""
        for pool in generation.pools:
            if generation in pool.generations:
                pool.generations.remove(generation)
                if pool.is_leaving():
                    self._fleet.dismiss(pool, now)
