"""A function behind key_by: its states and its calls are those of the current key, wherever rows run."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.state import add
from dirigo.testing import Simulation, assert_parallel_equals_sequential, run
from flow.flows import TS_SCHEMA, Rows, event, results, split_results, unordered

TOLD = {"key": str, "said": int}


def many(keys: str = "abcde", count: int = 200) -> Rows:
    """With a hot key: every other row is of the first one."""
    return [event(keys[0] if number % 2 else keys[number % len(keys)], number, number) for number in range(count)]


def flow_of(
    function: Any, rows: Rows, schema: Any = TOLD, *, keys: tuple[str, ...] = ("key",), partitions: int = 2
) -> dg.Dataflow:
    flow = dg.Dataflow("keyed", watermark_every="1ms", partitions=partitions)
    stream = flow.source(dg.from_iterable(rows, TS_SCHEMA, time="ts"))
    stream.key_by(*keys).process(function, schema, name="keyed").sink(dg.to_memory())
    return flow


class Numbered(dg.Function):
    """How many rows of its key came before each row."""

    ordered = True
    seen = dg.ValueState(int, default=0)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        assert context.key == row.key
        context.emit({"key": row.key, "said": self.seen.get()})
        self.seen.set(self.seen.get() + 1)


def numbered(rows: Rows) -> Rows:
    counts: Counter[str] = Counter()
    expected = []
    for row in rows:
        expected.append({"key": row["key"], "said": counts[row["key"]]})
        counts[row["key"]] += 1
    return expected


def test_a_value_is_that_of_the_rows_key() -> None:
    done = run(flow_of(Numbered, many()))
    assert unordered(done.rows()) == unordered(numbered(many()))
    assert done.state("keyed") == {key: {"seen": count} for key, count in Counter(row["key"] for row in many()).items()}


@pytest.mark.parametrize("seed", range(10))
def test_an_ordered_function_keeps_keys_apart_under_chaos(seed: int) -> None:
    done = run(flow_of(Numbered, many()), workers=3, chaos=True, seed=seed, rows_max=7)
    assert unordered(done.rows()) == unordered(numbered(many()))


class All(dg.Function):
    """A state of each kind, combined key by key."""

    count = dg.ValueState(int, default=0, combine=add)
    values = dg.ListState(int)
    by_rest = dg.MapState(int, int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        self.values.append(row.value)
        self.by_rest.add(row.value % 3, row.value)

    def on_end(self, context: dg.FunctionContext) -> None:
        rests = ",".join(f"{rest}:{total}" for rest, total in sorted(self.by_rest.items()))
        said = f"{self.count.get()} {sorted(self.values)} {rests}"
        context.emit({"key": context.key, "said": said})


def all_of(rows: Rows) -> Rows:
    expected = []
    for key in {row["key"] for row in rows}:
        values = sorted(row["value"] for row in rows if row["key"] == key)
        rests = ",".join(f"{rest}:{sum(v for v in values if v % 3 == rest)}" for rest in sorted({v % 3 for v in values}))
        expected.append({"key": key, "said": f"{len(values)} {values} {rests}"})
    return expected


@pytest.mark.parametrize("seed", range(20))
def test_a_parallel_function_combines_key_by_key_under_chaos(seed: int) -> None:
    done = run(flow_of(All, many(), {"key": str, "said": str}), workers=3, chaos=True, seed=seed, rows_max=5)
    assert unordered(done.rows()) == unordered(all_of(many()))
    assert done.elsewhere["keyed"] > 0


def test_what_several_workers_hold_is_shown_together_and_stays_where_it_is() -> None:
    flow = dg.Dataflow("keyed", partitions=1)
    stream = flow.source(dg.from_iterable([], TS_SCHEMA, name="rows"))
    stream.key_by("key").process(All, {"key": str, "said": str}, name="keyed").sink(dg.to_memory())
    simulation = Simulation(flow, open_sources="rows", workers=3, chaos=True, rows_max=4)
    simulation.push("rows", [(row["key"], row["value"], row["ts"]) for row in many()])
    simulation.advance("1m")
    assert simulation.elsewhere["keyed"] > 0
    first, second = simulation.state("keyed"), simulation.state("keyed")
    assert {key: held["count"] for key, held in first.items()} == Counter(row["key"] for row in many())
    assert {key: sorted(held["values"]) for key, held in first.items()} == {
        key: sorted(held["values"]) for key, held in second.items()
    }
    first["a"]["values"].clear()  # a copy
    simulation.finish()
    assert unordered(simulation.rows()) == unordered(all_of(many()))


def test_only_functions_have_states_to_look_at() -> None:
    with pytest.raises(dg.DirigoError, match=r"^name one of the functions keyed, not 'other'\.$"):
        run(flow_of(Numbered, many())).state("other")


class PerPartition(dg.Function):
    scope = "partition"
    count = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"key": str(context.partition), "said": self.count.get()})


def test_the_partitions_state_is_that_of_all_its_keys() -> None:
    done = run(flow_of(PerPartition, many()))
    assert sum(row["said"] for row in done.rows()) == 200
    assert done.state("keyed") == {int(row["key"]): {"count": row["said"]} for row in done.rows()}
    assert_parallel_equals_sequential(flow_of(PerPartition, many()), seeds=5)


class Told(dg.Function):
    """Says for which keys it is called, and when."""

    count = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1 if row.value >= 0 else -1)

    def on_watermark(self, context: dg.FunctionContext, time_ms: int) -> None:
        context.emit({"key": context.key, "said": min(time_ms, 1_000)})

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"key": context.key, "said": 10_000 + self.count.get()})


def test_calls_that_run_alone_are_made_for_every_key_that_holds_something_in_the_order_of_keys() -> None:
    rows = [event("b", 1, 1), event("a", 1, 2), event("b", -1, 3)]
    out = results(rows, lambda s: s.key_by("key").process(Told, TOLD), rows_max=1, partitions=1)
    assert [(row["key"], row["said"]) for row in out] == [
        ("b", 1),
        ("a", 2),
        ("b", 2),
        ("a", 3),  # b is back at the default, and holds nothing
        ("a", 1_000),
        ("a", 10_001),
    ]


class Nothing(dg.Function):
    """Keeps nothing for keys, so it is called for the partition."""

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"key": context.key, "said": row.value})

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"key": "end", "said": -1})


def test_a_function_that_keeps_nothing_is_called_once_per_partition() -> None:
    done = run(flow_of(Nothing, many()))
    assert sum(row["key"] == "end" for row in done.rows()) == 2
    assert done.state("keyed") == {}


class Critical(dg.Function):
    seen = dg.ListState(int)

    def __init__(self, passes: bool) -> None:
        self.passes = passes

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.seen.append(row.value)
        context.emit(row)

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit(event(context.key, 100 * len(self.seen), 0))
        if self.passes:
            super().on_critical(context, payload)


class Announcing(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)
        if row.value == 3:
            context.emit_critical("three")


class Hearing(dg.Function):
    scope = "partition"
    rows = dg.ListState(int)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.rows.append(row.value)

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": payload, "said": len(self.rows)})


@pytest.mark.parametrize("passes", [True, False])
def test_a_critical_message_is_handled_for_each_key_and_passed_on_once(passes: bool) -> None:
    rows = [event("ab"[number % 2], number, number) for number in range(6)]

    def build(stream: dg.Stream) -> dg.Stream:
        keyed = stream.process(Announcing, TS_SCHEMA).key_by("key").process(lambda: Critical(passes), TS_SCHEMA)
        return keyed.with_columns(all=1).key_by("all").process(Hearing, TOLD)

    out = results(rows, build, rows_max=1, partitions=1)
    # Four rows, and one of each key from the critical message itself.
    assert out == ([{"key": "three", "said": 6}] if passes else [])


# --- keys --------------------------------------------------------------------------------------------------------------


class Said(dg.Function):
    count = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"key": repr(context.key), "said": self.count.get()})


NAN = math.nan
DAY = datetime(2026, 1, 1, tzinfo=UTC)
KEYS: list[tuple[pa.DataType, list[Any], dict[str, int]]] = [
    (pa.int64(), [2, 1, 2], {"1": 1, "2": 2}),
    (pa.float64(), [NAN, 0.0, float("nan"), -0.0, 1.5], {"nan": 2, "0.0": 2, "1.5": 1}),
    (pa.bool_(), [True, False, True], {"True": 2, "False": 1}),
    (pa.binary(), [b"x", b"x"], {"b'x'": 2}),
    (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("1.50")], {"Decimal('1.50')": 2}),
    (pa.timestamp("ms", "UTC"), [DAY, DAY], {repr(DAY): 2}),
    (pa.timestamp("ns", "UTC"), [DAY, DAY + timedelta(days=1), DAY], {}),
    (pa.list_(pa.int64()), [[1], [1], [2]], {"[1]": 2, "[2]": 1}),
    (pa.struct([("x", pa.int64())]), [{"x": 1}, {"x": 1}], {"{'x': 1}": 2}),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"], {"'a'": 2, "'b'": 1}),
]


@pytest.mark.parametrize(("kind", "keys", "expected"), KEYS, ids=lambda value: str(value)[:20])
@pytest.mark.parametrize("chaos", [False, True])
def test_keys_are_equal_where_they_are_elsewhere(
    kind: pa.DataType, keys: list[Any], expected: dict[str, int], chaos: bool
) -> None:
    rows = [{"key": key} for key in keys] * 10
    flow = dg.Dataflow("kinds")
    stream = flow.source(dg.from_iterable(rows, pa.schema([("key", kind)])))
    stream.key_by("key").process(Said, TOLD, name="said").sink(dg.to_memory())
    stream.key_by("key").aggregate(n=dg.count()).sink(dg.to_memory(name="counted"))
    done = run(flow, workers=3 if chaos else 1, chaos=chaos, rows_max=3 if chaos else 100)
    said = {row["key"]: row["said"] for row in done.rows("to_memory")}
    assert len(said) == len(done.rows("to_memory"))
    assert sorted(said.values()) == sorted(row["n"] for row in done.rows("counted"))
    assert len(done.state("said")) == len(said)
    if expected:
        assert said == {key: 10 * count for key, count in expected.items()}


class Both(dg.Function):
    count = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        assert context.key == (row.key, row.value)


def test_several_columns_make_a_tuple() -> None:
    rows = [event("ab"[number % 2], number % 3, number) for number in range(12)]
    done = run(flow_of(Both, rows, keys=("key", "value")))
    assert done.state("keyed") == {(key, value): {"count": 2} for key in "ab" for value in range(3)}


def test_a_row_without_a_key_is_a_bad_one() -> None:
    rows: list[Any] = [event("a", 1, 1), {"key": None, "value": 2, "ts": 2}]
    out, errors = split_results(rows, lambda s: s.key_by("key").process(Numbered, TOLD))
    assert out == [{"key": "a", "said": 0}]
    assert [error["error"] for error in errors] == ["the key 'key' is null."]


class NoKey(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"key": context.key, "said": 0})


class PartitionKey(NoKey):
    scope = "partition"


@pytest.mark.parametrize(
    "build", [lambda s: s.process(NoKey, TOLD), lambda s: s.key_by("key").process(PartitionKey, TOLD)], ids=["none", "scope"]
)
def test_where_there_is_no_key_asking_for_it_is_an_error(build: Any) -> None:
    with pytest.raises(dg.RowFailure, match="there is no key here; call key_by"):
        results(many(), build)


def test_a_scope_is_key_or_partition() -> None:
    class Typo(Numbered):
        scope: ClassVar[Any] = "keys"

    with pytest.raises(dg.FlowError, match=r"^keyed: the scope of Typo is 'key' or 'partition', not 'keys'\.$"):
        flow_of(Typo, many())


def test_timers_without_keys_are_refused_too() -> None:
    class Timed(Nothing):
        def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
            pass

    flow = dg.Dataflow("timed")
    with pytest.raises(
        dg.FlowError, match=r"^process: the timers of Timed belong to keys, and its rows have none; call key_by"
    ):
        flow.source(dg.from_iterable(many(), TS_SCHEMA)).process(Timed, TOLD)


# --- values ------------------------------------------------------------------------------------------------------------


class InPlace(dg.Function):
    """Changes a mutable value in place."""

    ordered = True
    values = dg.ValueState(list, default=[])

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.values.get().append(row.value)


class OnlyLooks(InPlace):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        assert self.values.get() == []


def test_a_mutable_default_is_each_keys_own() -> None:
    rows = many(count=20)
    held = run(flow_of(InPlace, rows)).state("keyed")
    assert held == {key: {"values": [r["value"] for r in rows if r["key"] == key]} for key in {r["key"] for r in rows}}
    assert InPlace.values.default == []
    assert run(flow_of(OnlyLooks, rows)).state("keyed") == {}  # looking leaves nothing behind


class Clears(dg.Function):
    ordered = True
    value = dg.ValueState(int, default=7)
    items = dg.ListState(int)
    entries = dg.MapState(int, int)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        if row.value % 2 == 0:
            self.value.set(1)
            self.items.append(1)
            self.entries[1] = 1
        elif row.value % 3:
            self.value.clear()
            self.items.clear()
            self.entries.clear()
        else:
            self.value.set(7)
            self.items.clear()
            del self.entries[1]


def test_what_is_cleared_takes_no_room() -> None:
    rows = [event(key, value, value) for value in range(4) for key in "abc"]
    simulation = run(flow_of(Clears, rows, partitions=1))
    assert simulation.state("keyed") == {}
    assert run(flow_of(Clears, rows[:9])).state("keyed") == {
        key: {"value": 1, "items": [1], "entries": {1: 1}} for key in "abc"
    }


class Failing(dg.Function):
    """Some rows fail after they have asked for all that there is to ask for."""

    ordered = True
    seen = dg.ListState(int)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"key": row.key, "said": row.value})
        context.set_event_timer(100, row.value)
        context.set_timer("1s", row.value)
        if row.value % 2:
            raise ValueError("odd")
        self.seen.append(row.value)

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": context.key, "said": 1_000 + payload})
        if payload == 4:
            raise ValueError("four")


def test_a_row_that_fails_leaves_no_row_and_no_timer_behind() -> None:
    rows = [event("ab"[value // 3], value, value) for value in range(6)]
    out, errors = split_results(rows, lambda s: s.key_by("key").process(Failing, TOLD))
    assert unordered(out) == unordered(
        {"key": key, "said": said} for key, said in [("a", 0), ("a", 2), ("b", 4), ("a", 1_000), ("a", 1_002)]
    )
    assert len(errors) == 4
    assert [error["row"] for error in errors if "four" in error["error"]] == ["on_timer(4) for the key 'b'"]


class Reads(dg.Function):
    """Emits how often its key is known to have come, by what the last barrier has put together."""

    count = dg.ValueState(int, default=0, combine=add, replicated=True)
    items = dg.ListState(int, replicated=True)
    entries = dg.MapState(int, int, combine=add, replicated=True)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        self.items.append(1)
        self.entries.add(0, 1)
        assert self.count.read() >= self.count.get()
        assert (self.count.read(), self.count.read()) == (len(self.items.read()), self.entries.read_key(0))
        context.emit({"key": row.key, "said": self.count.read()})

    def on_watermark(self, context: dg.FunctionContext, time_ms: int) -> None:
        assert self.count.get() == len(self.items)


def test_replicated_states_are_read_by_key() -> None:
    totals = Counter(row["key"] for row in many())
    known: Counter[str] = Counter()
    for seed in range(5):
        done = run(flow_of(Reads, many()), workers=3, chaos=True, seed=seed, rows_max=5)
        assert done.elsewhere["keyed"] > 0
        for row in done.rows():
            assert row["said"] <= totals[row["key"]]
            known[row["key"]] = max(known[row["key"]], row["said"])
    assert known["a"] > totals["a"] // 2  # which none has seen alone


class Wrong(dg.Function):
    product = dg.ValueState(int, default=0, combine=lambda one, other: one * other)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.product.set(5)
        self.product.add(5)


def test_the_laws_are_checked() -> None:
    with pytest.raises(dg.RowFailure, match="State 'product' does not add up"):
        run(flow_of(Wrong, many()))


class Counting(dg.Function):
    count = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)


def test_keys_that_python_takes_for_equal_are_shown_apart() -> None:
    """02:30 comes twice in the night in which summer time ends."""
    kind = pa.timestamp("ms", "Europe/Berlin")
    flow = dg.Dataflow("night")
    rows = [(datetime(2026, 10, 25, hour, 30, tzinfo=UTC),) for hour in (0, 1, 1)]
    nights = flow.source(dg.from_iterable(rows, pa.schema([("hour", kind)])))
    nights.key_by("hour").process(Counting, pa.schema([("hour", kind)]), name="count").sink(dg.to_memory())
    held = run(flow).state("count")
    assert sorted(values["count"] for values in held.values()) == [1, 2]
    assert len({str(key) for key in held}) == 2
