"""The flight recorder: memory a worker writes and its node reads after the worker's death.

Owns the layout of the shared memory. Knows neither messages nor processes.

Why shared memory: a state written here costs a memory write and survives SIGKILL, so a ledger never has to guess.
The worker is not trusted, so the node reads with `pread` (a mapping of a file that shrinks would be a SIGBUS), and
the memory is sealed against growing and shrinking (memfd_create(2), F_ADD_SEALS in fcntl(2)).

Layout, all words unsigned 64 bit in native order:

    0      page 0: word 0 magic, 1 regions, 2 messages sent by the worker, 3 length of the proof text
    512    proof that memory ran out, utf-8, up to 1024 bytes
    4096   `regions` regions of `REGION` bytes, one for each batch that may be in flight:
               word 0  batch + 1, 0 while the region is unused
               word 1  number of calls
               word 2  when the worker took the batch (CLOCK_MONOTONIC ns, the same for all processes)
               word 3  slot + 1 of the call that began last, 0 for none
               word 4  when that call began
               word 5  batch + 1 that the node wants cancelled (written by the node)
               byte 64 one byte for each call: 0 not begun, 1 started, 2 finished; calls from `CALLS` on have none
    end    `STACKS` bytes of text: stacks of the worker's threads, written by faulthandler through the descriptor

The memory is sparse: pages that were never written take no room.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from time import monotonic_ns

import msgspec

from toolsd.errors import CallState

CALLS = 16_384
REGION = 4096 + CALLS
STACKS = 256 * 1024
_PAGE = 4096
_STATES = 64
_PROOF_AT, _PROOF_MAX = 512, 1024
_MAGIC = 0x31304C4644534454
_REGIONS, _SENT, _PROOF = 1, 2, 3
_BATCH, _COUNT, _BEGAN, _RUNNING, _SINCE, _CANCEL = range(6)
STARTED, FINISHED = 1, 2
_NAMES: dict[int, CallState] = {0: "sent", STARTED: "started", FINISHED: "finished"}


def _stacks_at(regions: int) -> int:
    return _PAGE + regions * REGION


def create(regions: int) -> int:
    """A new recorder's descriptor, sealed to its size. The caller closes it."""
    fd = os.memfd_create("toolsd-flight", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, _stacks_at(regions) + STACKS)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    os.pwrite(fd, struct.pack("=QQ", _MAGIC, regions), 0)
    return fd


class Region:
    """The worker's hand on one region. Words and states are plain memory."""

    __slots__ = ("states", "words")

    def __init__(self, memory: memoryview) -> None:
        self.words = memory[:_STATES].cast("Q")
        self.states = memory[_STATES : _STATES + CALLS]

    def begin(self, batch: int, count: int) -> None:
        words = self.words
        words[_BATCH] = 0  # while it is written it belongs to no batch
        self.states[: min(count, CALLS)] = bytes(min(count, CALLS))
        words[_COUNT] = count
        words[_RUNNING] = 0
        words[_BEGAN] = monotonic_ns()
        words[_BATCH] = batch + 1

    def started(self, slot: int) -> None:
        if slot < CALLS:
            self.states[slot] = STARTED
        words = self.words
        words[_SINCE] = monotonic_ns()
        words[_RUNNING] = slot + 1

    def finished(self, slot: int) -> None:
        if slot < CALLS:
            self.states[slot] = FINISHED

    def cancel_asked(self, batch: int) -> bool:
        return self.words[_CANCEL] == batch + 1


class Writer:
    """The worker's end: the whole recorder, mapped."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        size = os.fstat(fd).st_size
        self._memory = memoryview(mmap.mmap(fd, size))
        self._words = self._memory[:_STATES].cast("Q")
        count = self._words[_REGIONS]
        self.regions = [Region(self._memory[_PAGE + i * REGION : _PAGE + (i + 1) * REGION]) for i in range(count)]
        os.lseek(fd, _stacks_at(count), os.SEEK_SET)  # where faulthandler writes

    def sending(self) -> None:
        """Called just before each message: what was announced here and has not arrived is worth waiting for."""
        self._words[_SENT] += 1

    def out_of_memory(self, proof: str) -> None:
        """Leave the proof that memory was what ended this worker."""
        text = proof.encode("utf-8", "replace")[:_PROOF_MAX]
        self._memory[_PROOF_AT : _PROOF_AT + len(text)] = text
        self._words[_PROOF] = len(text)


class Reading(msgspec.Struct, frozen=True):
    """What the recorder says of one batch. Times are seconds; `running` is the slot of the call that was running."""

    states: tuple[CallState, ...]
    running: int | None = None
    running_for: float | None = None
    elapsed: float | None = None


class Reader:
    """The node's end: reads, and writes nothing but cancel marks. Owns the descriptor."""

    def __init__(self, fd: int, regions: int) -> None:
        self.fd = fd
        self._regions = regions

    def sent(self) -> int:
        """How many messages the worker announced."""
        return self._word(0, _SENT)

    def proof(self) -> str | None:
        """The proof that memory ran out, if the worker left one."""
        length = min(self._word(0, _PROOF), _PROOF_MAX)
        return os.pread(self.fd, length, _PROOF_AT).decode("utf-8", "replace") if length else None

    def stacks(self) -> str | None:
        """The stacks of the worker's threads, if they were taken."""
        text = os.pread(self.fd, STACKS, _stacks_at(self._regions))
        return text[: text.find(b"\0")].decode("utf-8", "replace") or None

    def ask_cancel(self, region: int, batch: int) -> None:
        """Mark the batch as cancelled: the worker looks here when it is signalled."""
        os.pwrite(self.fd, struct.pack("=Q", batch + 1), self._region(region) + 8 * _CANCEL)

    def read(self, region: int, batch: int, count: int) -> Reading:
        """The states of the batch's `count` calls: all `sent` when the worker never took it."""
        at = self._region(region)
        words = struct.unpack("=6Q", os.pread(self.fd, 48, at))
        if words[_BATCH] != batch + 1:
            return Reading(states=(_NAMES[0],) * count)
        known = min(count, CALLS)
        raw = os.pread(self.fd, known, at + _STATES)
        unknown: CallState = "unknown"
        states = tuple(_NAMES.get(state, unknown) for state in raw) + (unknown,) * (count - known)
        now = monotonic_ns()
        running: int | None = words[_RUNNING] - 1
        since = max(0, now - words[_SINCE]) / 1e9
        if not 0 <= words[_RUNNING] - 1 < known or raw[words[_RUNNING] - 1] != STARTED:
            running = raw.find(STARTED)  # the one that began last is over, another of the batch still runs
            running, since = (running, -1.0) if running >= 0 else (None, -1.0)
        return Reading(
            states=states,
            running=running,
            running_for=since if since >= 0 else None,
            elapsed=max(0, now - words[_BEGAN]) / 1e9,
        )

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _region(self, region: int) -> int:
        if not 0 <= region < self._regions:
            raise IndexError(f"region {region} of {self._regions}")
        return _PAGE + region * REGION

    def _word(self, at: int, index: int) -> int:
        value: int = struct.unpack("=Q", os.pread(self.fd, 8, at + 8 * index))[0]
        return value
