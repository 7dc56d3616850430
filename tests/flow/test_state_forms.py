"""What operators keep, as a text: it differs where what one has kept means something else to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dirigo as dg
from dirigo.flow.plan.description import describe, read, written
from dirigo.flow.plan.plan import Plan

SCHEMA = {"k": int, "n": int, "s": str, "at": int}
Build = Callable[[Any], Any]


class Counting(dg.Function):
    count = dg.ValueState(int, default=0, combine=int.__add__)

    def on_message(self, context: Any, row: Any) -> None:
        self.count.add(1)


class OtherCode(dg.Function):
    count = dg.ValueState(int, default=0, combine=int.__add__)

    def on_message(self, context: Any, row: Any) -> None:
        self.count.add(2)


class Listing(dg.Function):
    count = dg.ListState(int)

    def on_message(self, context: Any, row: Any) -> None:
        self.count.append(1)


class More(Counting):
    names = dg.ListState(str)


class Expiring(dg.Function):
    count = dg.ValueState(int, default=0, combine=int.__add__, ttl="1h")

    def on_message(self, context: Any, row: Any) -> None:
        self.count.add(1)


class ExpiringByTheClock(Expiring):
    count = dg.ValueState(int, default=0, combine=int.__add__, ttl="1h", ttl_time="clock")


class ExpiringLater(Expiring):
    count = dg.ValueState(int, default=0, combine=int.__add__, ttl="2h")


class OfTexts(Counting):
    count = dg.ValueState(str, default="", combine=max)  # type: ignore[assignment]


class Mapping(Counting):
    count = dg.MapState(str, int)  # type: ignore[assignment]
    ordered = True


class MappingTexts(Mapping):
    count = dg.MapState(str, str)  # type: ignore[assignment]


def forms_of(build: Build) -> list[str]:
    flow = dg.Dataflow("described")
    build(flow.source(dg.from_iterable([], schema=SCHEMA, time="at"))).sink(dg.to_nothing())
    description = describe(Plan(flow))
    assert read(written(description)) == description
    return [each.state for each in description.operators if each.state and not each.is_source]


def window(aggregate: Any = None, key: str = "k", window: Any = None, **options: Any) -> Build:
    made = window or dg.Tumbling("10s")
    return lambda rows: rows.key_by(key).window(made, **options).aggregate(v=aggregate or dg.sum("n"))


def process(function: Any, key: str = "k") -> Build:
    return lambda rows: rows.key_by(key).process(function, schema={"n": int})


def near(*within: str) -> Build:
    return lambda rows: rows.join(rows, on="k", within=within)


def top(n: int, by: str) -> Build:
    return lambda rows: rows.key_by("k").window(dg.Tumbling("10s")).top(n, by=by)


def keep(*columns: str, within: str | None = None) -> Build:
    return lambda rows: rows.deduplicate(*columns, within=within)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (window(), window(dg.max("n"))),
        (window(), window(dg.sum(dg.col("n") * 1.0))),
        (window(), window(key="s")),
        (window(), window(allowed_lateness="1s")),
        (window(), window(window=dg.Tumbling("20s"))),
        (window(), window(window=dg.Tumbling("10s", offset="1s"))),
        (window(), window(window=dg.Sliding("10s", every="2s"))),
        (window(window=dg.Session("1s")), window(window=dg.Session("2s"))),
        (top(3, "n"), top(4, "n")),
        (top(3, "n"), top(3, "-n")),
        (near("1s", "1s"), near("1s", "2s")),
        (keep("k"), keep("s")),
        (keep("k"), keep("k", within="1s")),
        (process(Counting), process(Listing)),
        (process(Counting), process(More)),
        (process(Counting), process(Expiring)),
        (process(Expiring), process(ExpiringByTheClock)),
        (process(Counting), process(OfTexts)),
        (process(Mapping), process(MappingTexts)),
        (process(Counting), process(Counting, key="s")),
    ],
)
def test_what_means_something_else_differs(one: Build, other: Build) -> None:
    assert len(forms_of(one)) == len(forms_of(other)) == 1
    assert forms_of(one) != forms_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (process(Counting), process(OtherCode)),
        (process(Expiring), process(ExpiringLater)),
        (keep("k", within="1s"), keep("k", within="2s")),
    ],
)
def test_what_means_the_same_may_change(one: Build, other: Build) -> None:
    assert len(forms_of(one)) == 1
    assert forms_of(one) == forms_of(other)


def test_what_keeps_nothing_has_no_form() -> None:
    assert forms_of(lambda rows: rows.filter(dg.col("n") > 1).map(lambda row: {"n": row.n}, schema={"n": int})) == []


def numbers(block: int = 10, **options: Any) -> Any:
    return dg.from_generator(lambda *_: [], SCHEMA, 100, block=block, time="at", **options)


def at_rate(source: Any, rate: int = 10) -> Any:
    return dg.shaped(source, dg.loads.constant(rate))


def position_form(source: Any) -> str:
    flow = dg.Dataflow("described")
    flow.source(source).sink(dg.to_nothing())
    (form,) = (each.state for each in describe(Plan(flow)).operators if each.is_source)
    return form


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (numbers(block=10), numbers(block=20)),
        (at_rate(numbers(block=10)), at_rate(numbers(block=20))),
        (dg.paced(numbers(block=10)), dg.paced(numbers(block=20))),
        (dg.nexmark.bids(1_000), dg.nexmark.bids(1_000, block_events=100)),
        (at_rate(numbers()), at_rate(dg.from_iterable([], SCHEMA, time="at"))),
        (at_rate(numbers()), dg.paced(numbers())),
        (at_rate(numbers()), numbers()),
    ],
)
def test_positions_that_mean_other_rows_differ(one: Any, other: Any) -> None:
    assert position_form(one) != position_form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(numbers(), numbers(out_of_orderness="1s")), (at_rate(numbers(), 10), at_rate(numbers(), 20))],
)
def test_positions_that_mean_the_same_rows_do_not(one: Any, other: Any) -> None:
    assert position_form(one) == position_form(other)
