"""Durations as users write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.flow.api.duration import format_milliseconds, milliseconds, positive_milliseconds, seconds
from dirigo.flow.errors import FlowError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("200ms", 200),
        ("10s", 10_000),
        ("1.5h", 5_400_000),
        ("2 min", 120_000),
        ("2m", 120_000),
        ("1d", 86_400_000),
        ("1h30m", 5_400_000),
        (" 1h 30 min ", 5_400_000),
        ("0.25s", 250),
        (".5s", 500),
        ("1M", 60_000),
        ("0s", 0),
    ],
)
def test_texts_with_units_are_read(text: str, expected: int) -> None:
    assert milliseconds(text, "size") == expected


def test_a_timedelta_is_read() -> None:
    assert milliseconds(timedelta(days=1, milliseconds=3), "size") == 86_400_003


@pytest.mark.parametrize(
    ("value", "expected"),
    [("50us", 0.000_05), ("1ms500us", 0.001_5), ("0.5ms", 0.000_5), ("2s", 2.0), (timedelta(microseconds=7), 0.000_007)],
)
def test_where_a_setting_may_be_short_fractions_of_a_millisecond_are_read(value: Any, expected: float) -> None:
    assert seconds(value, "work") == pytest.approx(expected, abs=1e-12)


def test_whole_milliseconds_can_be_written_in_microseconds() -> None:
    assert milliseconds("2000us", "size") == 2


@pytest.mark.parametrize("value", [10, 1.5, "10", " 2.5 ", True, None])
def test_a_number_without_a_unit_is_refused_with_an_example(value: Any) -> None:
    with pytest.raises(FlowError, match=r"^window size: .* say the unit, for example '10s'\.$"):
        milliseconds(value, "window size")


@pytest.mark.parametrize("text", ["", "s", "ten seconds", "10 parsecs", "10s later", "1..5s", "10 s,", "1e3s", "10sx", "٣s"])
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(FlowError, match=r"gap: .* is not a duration"):
        milliseconds(text, "gap")


@pytest.mark.parametrize("value", ["-1s", timedelta(seconds=-1), timedelta(microseconds=-1)])
def test_negative_durations_are_refused(value: str | timedelta) -> None:
    with pytest.raises(FlowError, match="negative"):
        milliseconds(value, "gap")


@pytest.mark.parametrize("value", ["0.5ms", "500us", "1.0005s", timedelta(microseconds=1)])
def test_fractions_of_a_millisecond_are_refused(value: str | timedelta) -> None:
    with pytest.raises(FlowError, match="whole number of milliseconds"):
        milliseconds(value, "gap")


def test_zero_is_refused_only_where_it_makes_no_sense() -> None:
    assert milliseconds("0ms", "lateness") == 0
    with pytest.raises(FlowError, match="size: '0ms' is no time at all"):
        positive_milliseconds("0ms", "size")
    assert positive_milliseconds("1ms", "size") == 1


@pytest.mark.parametrize(
    ("ms", "text"), [(10_000, "10s"), (5_400_000, "1h30m"), (0, "0s"), (86_400_001, "1d1ms"), (-1_500, "-1s500ms")]
)
def test_durations_are_shown_as_short_text(ms: int, text: str) -> None:
    assert format_milliseconds(ms) == text


@given(st.integers(min_value=0, max_value=10**13))
def test_what_is_shown_reads_back_as_the_same_duration(ms: int) -> None:
    assert milliseconds(format_milliseconds(ms), "size") == ms


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_timedeltas_are_exact_or_refused(value: timedelta) -> None:
    if value.microseconds % 1_000:
        with pytest.raises(FlowError):
            milliseconds(value, "size")
    else:
        assert timedelta(milliseconds=milliseconds(value, "size")) == value
