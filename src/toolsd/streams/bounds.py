"""The host's bounds on a stream: two clocks and a budget. Time is an argument, nothing here waits or reads a clock."""

from __future__ import annotations

from toolsd.streams.arguments import MAX_DEPTH


class StreamWatchdog:
    """Two clocks, in seconds on any monotonic scale; None switches a clock off.

    `idle` runs since the last bytes of the transport, and a ping is bytes. `total` runs since the start and nothing
    resets it: a server that only pings ends all the same.
    """

    __slots__ = ("_last", "_start", "idle", "total")

    def __init__(self, idle: float | None = 60.0, total: float | None = 900.0, *, now: float) -> None:
        self.idle = idle
        self.total = total
        self._start = self._last = now

    def saw(self, now: float) -> None:
        """Something came: content, a ping, a comment."""
        self._last = max(self._last, now)

    def expired(self, now: float) -> str | None:
        """`stream_timeout` or `stream_idle` if that clock has run out at `now`, else None."""
        if self.total is not None and now >= self._start + self.total:
            return "stream_timeout"
        if self.idle is not None and now >= self._last + self.idle:
            return "stream_idle"
        return None

    def deadline(self) -> float | None:
        """The instant at which `expired` will first say something if nothing comes; None if never."""
        ends = []
        if self.total is not None:
            ends.append(self._start + self.total)
        if self.idle is not None:
            ends.append(self._last + self.idle)
        return min(ends, default=None)


class StreamBudget:
    """How much one completion may hold; None is without a limit.

    `bytes` counts what was fed as text, or the characters of arguments where chunks came decoded. `calls` counts
    calls, never index values: one call with index 1000000000 is one call. `depth` is the nesting of arguments.
    """

    __slots__ = ("bytes", "calls", "depth")

    def __init__(
        self, bytes: int | None = 256 * 1024 * 1024, calls: int | None = 16_384, depth: int = MAX_DEPTH
    ) -> None:
        self.bytes = bytes
        self.calls = calls
        self.depth = depth

    def exceeded(self, bytes: int, calls: int) -> str | None:
        """`budget_bytes` or `budget_calls` if the stream is over its budget, else None."""
        if self.bytes is not None and bytes > self.bytes:
            return "budget_bytes"
        if self.calls is not None and calls > self.calls:
            return "budget_calls"
        return None
