"""What is read of a cut under chaos counts exactly the rows that were read before it, wherever they were executed."""

from __future__ import annotations

from typing import Any

import pytest

import dirigo as dg
from dirigo.testing.crashes.generations import Crash, Generation
from dirigo.testing.crashes.snapshots_taken import SnapshotTaken
from dirigo.testing.strategies import SimulatedStrategy
from flow.recovery.flows import flow_of, rows_of

STRATEGIES: list[SimulatedStrategy] = ["chaos", "direct_send"]


class Counted(dg.Function):
    count = dg.ValueState(int, default=0, combine=lambda one, other: one + other)
    total = dg.ValueState(int, default=0, combine=lambda one, other: one + other)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        self.total.add(row.n)
        context.emit(row.asdict())


def build(stream: dg.Stream) -> dg.Stream:
    counted = stream.key_by("key").process(Counted, {"at": int, "key": int, "n": int}, name="counts")
    return counted.key_by("key").aggregate(count=dg.count(), total=dg.sum("n"))


def expected(read: int) -> dict[int, tuple[int, int]]:
    rows = rows_of()[:read]
    keys = {row["key"] for row in rows}
    return {
        key: (sum(row["key"] == key for row in rows), sum(row["n"] for row in rows if row["key"] == key)) for key in keys
    }


def state_of(generation: Generation, snapshot: SnapshotTaken, operator: str) -> dict[int, tuple[int, int]]:
    stage = next(each for each in generation.job.plan.stages if each.name == operator)
    rows: list[dict[str, Any]] = []
    for partition, place in enumerate(stage.places):
        captured = snapshot.captures[place]
        assert captured is not None
        rows += stage.state_table(partition, captured, 0).to_pylist()
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: (row["count"], row["total"]) for row in rows}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_operators_agree_with_each_other_and_with_the_input(strategy: SimulatedStrategy) -> None:
    looked_at = spread = 0
    for seed in range(12):
        options: dict[str, Any] = {"seed": seed, "workers": 3, "strategy": strategy, "rows_max": 8}
        whole = Generation(flow_of(build), None, is_cut_at_random=True, **options).count_events()
        generation = Generation(flow_of(build), None, is_cut_at_random=True, **options)
        generation.crash_after(whole // 2)
        with pytest.raises(Crash):
            generation.finish()
        snapshot = generation.last_complete
        if snapshot is None or None in snapshot.captures.values():
            continue
        (reader,) = snapshot.readers.values()
        read = reader.rows
        assert state_of(generation, snapshot, "counts") == expected(read)
        assert state_of(generation, snapshot, "aggregate") == expected(read)
        looked_at += read > 0
        spread += generation.elsewhere["counts"] > 0
    assert looked_at >= 3
    assert spread >= 3
