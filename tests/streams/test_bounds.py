"""Clocks and budgets, without waiting."""

from toolsd.streams import CompletionAssembler, StreamBudget, StreamWatchdog


def test_pings_reset_idle_and_never_total():
    dog = StreamWatchdog(idle=10, total=35, now=100.0)
    assert dog.deadline() == 110
    for now in (109.0, 118.0, 127.0, 134.9):
        assert dog.expired(now) is None
        dog.saw(now)
    assert dog.deadline() == 135
    assert dog.expired(135.0) == "stream_timeout"


def test_silence_is_idle():
    dog = StreamWatchdog(idle=10, total=None, now=0)
    dog.saw(5)
    dog.saw(3)  # clocks of two threads may disagree a little
    assert dog.expired(14.9) is None
    assert dog.expired(15) == "stream_idle"


def test_both_off():
    dog = StreamWatchdog(None, None, now=0)
    assert (dog.deadline(), dog.expired(1e9)) == (None, None)


def head(index, arguments="{}"):
    return {"index": index, "id": f"call_{index}", "function": {"name": "f", "arguments": arguments}}


def test_a_call_cap_counts_calls_not_indices():
    assembler = CompletionAssembler(budget=StreamBudget(calls=2))
    assembler.observe([head(10**9), head(10**12)])
    assert assembler.stopped is None
    assembler.observe([head(0)])
    assert assembler.stopped == "budget_calls"
    assert "budget_calls" in assembler.finish("tool_calls").defects


def test_beyond_the_byte_budget_nothing_is_read():
    assembler = CompletionAssembler(budget=StreamBudget(bytes=100))
    for _ in range(1000):
        assembler.observe([head(0, "x" * 60)])
    finished = assembler.finish("tool_calls")
    assert finished.defects == ("budget_bytes",)
    assert len(finished.calls[0].arguments) == 120


def test_a_watchdog_that_fired_is_a_defect_of_the_turn():
    assembler = CompletionAssembler()
    assembler.observe([head(0)])
    assembler.fail("stream_idle")
    assembler.observe([head(1)])
    finished = assembler.finish()
    assert (finished.defects, len(finished.calls)) == (("stream_idle",), 1)
