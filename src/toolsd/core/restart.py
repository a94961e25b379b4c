"""Whether a source may be started again, and when: OTP restart intensity with backoff and a breaker.

Owns the memory of failures of one source. Knows nothing of workers, and no clock: `now` is an argument.

Theory of operation. The vocabulary is that of Erlang's supervisor (stdlib, supervisor.erl: intensity and period). The
breaker is

    closed      starts are allowed; the n-th failure in a row delays the next start by 0, min, 2 min, 4 min … up to
                the maximum. The first one costs nothing: a worker that was fine and died is back at once.
    open        more than `max` failures fell `within` seconds: no start until `cool_down` has passed.
    half_open   one trial start. If it fails, the breaker is open again for another cool-down. If it stays up for
                `stable_after` seconds, the breaker is closed and everything is forgotten.

A crash loop is a source that dies and dies and does nothing in between. So the death of a worker that had answered
a batch counts as the first failure, whatever came before: a source killed two hundred times between good turns serves
two hundred good turns (dramatiq #260), while one that never gets anything done rests after `max` attempts.

Only failures count: deaths nobody asked for, starts that did not end in READY, and workers killed for breaking the
protocol. A worker killed for a deadline or a cancel did nothing that a restart policy could mend.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

from toolsd.core.model import Restart

BreakerState = Literal["closed", "open", "half_open"]
Jitter = Callable[[], float]

_NEVER = float("inf")


class Restarts:
    """The restart policy of one source at work.

    `jitter` gives numbers in [0, 1): a delay is shortened by up to half of itself, so that sources that died
    together do not come back together. Without it delays are exact.
    """

    __slots__ = ("_consecutive", "_failures", "_jitter", "_not_before", "_policy", "_trial_since", "breaker", "total")

    def __init__(self, policy: Restart, jitter: Jitter | None = None) -> None:
        self._policy = policy
        self._jitter = jitter
        self._failures: deque[float] = deque(maxlen=policy.max + 1)
        self._consecutive = 0
        self._not_before = -_NEVER
        self._trial_since: float | None = None
        self.breaker: BreakerState = "closed"
        self.total = 0

    def may_start_at(self, now: float) -> float:
        """The instant from which a start is allowed; `inf` while a trial is being made."""
        if self.breaker == "half_open":
            if self._trial_since is None:
                return _NEVER
            stable_at = self._trial_since + self._policy.stable_after
            if now < stable_at:
                return stable_at
            self.forgive()
        return self._not_before

    def is_resting(self, now: float) -> bool:
        """Whether the breaker is open and its cool-down has not passed."""
        return self.breaker == "open" and now < self._not_before

    def starting(self) -> None:
        """A start is made now; after an open breaker it is the trial."""
        if self.breaker == "open":
            self.breaker = "half_open"
            self._trial_since = None

    def ready(self, now: float) -> None:
        """The started worker came up."""
        if self.breaker == "half_open" and self._trial_since is None:
            self._trial_since = now

    def failed(self, now: float, uptime: float, proven: bool = False) -> bool:
        """A worker failed after `uptime` seconds of being ready (0: never). True when this opened the breaker.

        `proven`: it had answered a batch in this life, so the failures before it were not the start of a loop.
        """
        policy = self._policy
        self.total += 1
        if self.breaker == "half_open":
            if self._trial_since is None or now < self._trial_since + policy.stable_after:
                self._open(now)
                return True
            self.forgive()
        if proven:
            self._failures.clear()
        if proven or (uptime >= policy.stable_after and uptime > 0):
            self._consecutive = 0
        self._consecutive += 1
        self._failures.append(now)
        if self.breaker == "open":
            return False
        if len(self._failures) > policy.max and now - self._failures[0] <= policy.within:
            self._open(now)
            return True
        self._not_before = now + self._delay()
        return False

    def forgive(self) -> None:
        """Forget all failures: the source was stable, or a person published it anew."""
        self.breaker = "closed"
        self._failures.clear()
        self._consecutive = 0
        self._not_before = -_NEVER
        self._trial_since = None

    def abandoned(self) -> None:
        """The trial was ended by us before it showed anything: the next start is the trial again."""
        if self.breaker == "half_open":
            self.breaker = "open"
            self._trial_since = None

    def _open(self, now: float) -> None:
        self.breaker = "open"
        self._trial_since = None
        self._not_before = now + self._policy.cool_down

    def _delay(self) -> float:
        if self._consecutive < 2:
            return 0.0
        doublings = min(self._consecutive - 2, 64)
        delay = min(self._policy.backoff_min * 2.0**doublings, self._policy.backoff_max)
        return delay if self._jitter is None else delay * (1 - self._jitter() / 2)
