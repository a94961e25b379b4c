"""Durations and sizes: what is written is what is read, and nothing without a unit is accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsd.config import units


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("20s", 20),
        ("500ms", 0.5),
        ("10m", 600),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("2d", 172_800),
        (" 3 s ", 3),
        ("0s", 0),
    ],
)
def test_durations(written: str, seconds: float) -> None:
    assert units.duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("8MiB", 8 << 20),
        ("512M", 512 << 20),
        ("1KB", 1000),
        ("1k", 1024),
        ("2gib", 2 << 30),
        ("7B", 7),
        ("1.5MiB", 3 << 19),
    ],
)
def test_sizes(written: str, count: int) -> None:
    assert units.size(written) == count


@pytest.mark.parametrize("value", [20, 1.5, "20", "", "s", "20 parsecs", "-1s", "1s!", None, [], {}, True, "400d"])
def test_what_is_not_a_duration_is_refused(value: Any) -> None:
    with pytest.raises(units.Unfit):
        units.duration(value)


@pytest.mark.parametrize("value", [20, "20", "", "MiB", "8 bytes", "-1MiB", None, [], True, "9999999GiB", "0B"])
def test_what_is_not_a_size_is_refused(value: Any) -> None:
    with pytest.raises(units.Unfit):
        units.size(value)


def test_a_bare_number_gets_the_unit_it_lacks() -> None:
    with pytest.raises(units.Unfit) as refused:
        units.duration(20)
    assert refused.value.hint is not None and '"20s"' in refused.value.hint
    with pytest.raises(units.Unfit) as refused:
        units.size(512)
    assert refused.value.hint is not None and "MiB" in refused.value.hint


def test_none_is_a_limit_only_when_written_out() -> None:
    assert units.or_none(units.duration)("none") is None
    assert units.or_none(units.size)("none") is None
    for value in (None, "None", "", "0"):
        with pytest.raises(units.Unfit):
            units.or_none(units.duration)(value)


def test_a_size_within_bounds() -> None:
    parse = units.size_within(1 << 20, 1 << 30, "because")
    assert parse("1MiB") == 1 << 20
    for value, bound in (("1KiB", "at least 1MiB"), ("2GiB", "at most 1GiB")):
        with pytest.raises(units.Unfit, match="because") as refused:
            parse(value)
        assert refused.value.hint == f"write {bound}"


@given(st.integers(1, 10**10))
def test_a_duration_is_shown_as_it_would_be_written(milliseconds: int) -> None:
    assert units.duration(units.format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@given(st.integers(1, 2**50))
def test_a_size_is_shown_as_it_would_be_written(count: int) -> None:
    assert units.size(units.format_size(count)) == count


def test_a_range_goes_up() -> None:
    assert units.duration_range("0.2s..30s") == pytest.approx((0.2, 30))
    for value in ("30s..1s", "1s", "1..2", "..", 3, None):
        with pytest.raises(units.Unfit):
            units.duration_range(value)
