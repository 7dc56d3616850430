"""What all sources have in common."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dirigo.flow.errors import FlowError
from dirigo.flow.sources import (
    Source,
    from_csv,
    from_generator,
    from_iterable,
    from_json_lines,
    from_parquet,
    from_socket,
    paced,
    shaped,
)
from dirigo.flow.sources import load_shapes as loads


def ones(first: int, count: int) -> Sequence[Mapping[str, Any]]:
    return [{"a": 1}] * count


@pytest.fixture
def bounded_sources(tmp_path: Path) -> list[Source]:
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    return [
        from_csv(tmp_path / "a.csv"),
        from_json_lines(tmp_path / "a.jsonl"),
        from_parquet(tmp_path / "a.parquet"),
        from_generator(ones, {"a": int}, 1),
        from_iterable([{"a": 1}]),
        paced(from_iterable([{"a": 1}], time="a")),
        shaped(from_iterable([{"a": 1}]), loads.constant("1k/s")),
    ]


def test_a_source_and_a_fresh_split_can_be_sent_to_another_process(bounded_sources: list[Source]) -> None:
    for source in bounded_sources:
        for split in (pickle.loads(pickle.dumps(source)).splits(1)[0], pickle.loads(pickle.dumps(source.splits(1)[0]))):
            assert split.read(10).rows.to_pylist() == [{"a": 1}], source
            split.close()
    assert pickle.loads(pickle.dumps(from_socket("localhost", 9))).port == 9


def test_a_split_says_when_it_has_ended_and_stays_so(bounded_sources: list[Source]) -> None:
    for source in bounded_sources:
        (split,) = source.splits(5)
        pieces = [split.read(10) for _ in range(4)]
        assert split.ended, source
        assert sum(piece.rows.num_rows for piece in pieces if piece is not None) == 1
        assert split.read(10) is None
        split.close()


def test_every_source_refuses_what_makes_no_sense(bounded_sources: list[Source]) -> None:
    for source in [*bounded_sources, from_socket("localhost", 9)]:
        with pytest.raises(FlowError, match="at least one"):
            source.splits(0)
    with pytest.raises(FlowError, match="name that is not empty"):
        from_iterable([{"a": 1}], name="")
    with pytest.raises(FlowError, match="idle_after"):
        from_iterable([{"a": 1}], idle_after="0s")
