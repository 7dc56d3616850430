"""Places and names that nobody may share, and names that people of other engines would try."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from dirigo.testing import run

ROWS = [{"key": number % 3, "at": number} for number in range(6)]


def test_two_sinks_cannot_write_to_one_folder(tmp_path: Path) -> None:
    flow = dg.Dataflow("shared")
    rows = flow.source(dg.from_iterable(ROWS))
    rows.sink(dg.to_parquet(tmp_path / "out"), name="one")
    rows.sink(dg.to_parquet(tmp_path / "there" / ".." / "out"), name="other")
    with pytest.raises(dg.FlowError, match="the sinks 'one' and 'other' both write to"):
        run(flow, writes=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("sink", [dg.to_parquet, dg.to_json_lines])
def test_a_sink_cannot_replace_what_its_flow_reads(tmp_path: Path, sink: type[dg.Sink]) -> None:
    flow = dg.Dataflow("first")
    flow.source(dg.from_iterable(ROWS)).sink(sink(tmp_path))  # type: ignore[arg-type]
    run(flow, writes=True)
    again = dg.Dataflow("again")
    read = dg.from_parquet if sink is dg.to_parquet else dg.from_json_lines
    again.source(read(tmp_path)).sink(sink(tmp_path, mode="overwrite"))  # type: ignore[arg-type, call-arg]
    with pytest.raises(dg.FlowError, match=r"writes to the folder that .* reads"):
        run(again, writes=True)
    kept = dg.to_memory()
    last = dg.Dataflow("last")
    last.source(read(tmp_path)).sink(kept)
    run(last, writes=True)
    assert len(kept.rows) == len(ROWS)


REMOTE = ["s3://bucket/x", "hdfs://host:9000/x", "dbfs:/x", "gs://b", "https://host/x.csv"]


@pytest.mark.parametrize("path", [*REMOTE, *map(Path, REMOTE), "file://elsewhere/x"], ids=str)
@pytest.mark.parametrize("opens", [dg.from_csv, dg.from_json_lines, dg.from_parquet, dg.to_parquet, dg.to_json_lines])
def test_a_place_elsewhere_is_not_taken_for_a_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: Callable[[Any], object], path: str | Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dg.FlowError, match=r"is no local path, and other file systems are not supported; mount it"):
        opens(path)
    assert not list(tmp_path.iterdir())


def test_a_url_of_a_local_file_is_that_file(tmp_path: Path) -> None:
    place = tmp_path / "my files"
    flow = dg.Dataflow("first")
    flow.source(dg.from_iterable(ROWS)).sink(dg.to_parquet(place.as_uri()))
    run(flow, writes=True)
    assert list(place.glob("*.parquet"))
    again = dg.Dataflow("again")
    again.source(dg.from_parquet(place.as_uri())).sink(dg.to_memory())
    assert len(run(again).rows()) == len(ROWS)
    assert dg.to_parquet("a:b").place == Path("a:b")


@pytest.mark.parametrize("path", ["", None, 7, b"out", "a\0b"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(dg.FlowError, match="is no path"):
        dg.to_parquet(path)
    with pytest.raises(dg.FlowError, match="is no path"):
        dg.from_csv(path)


def test_a_name_that_was_given_to_a_sink_is_kept_or_refused() -> None:
    flow = dg.Dataflow("names")
    rows = flow.source(dg.from_iterable(ROWS))
    rows.sink(dg.to_memory(name="mine"))
    with pytest.raises(dg.FlowError, match="two operators with the name 'mine'"):
        rows.sink(dg.to_memory(name="mine"))
    rows.sink(dg.to_memory())
    rows.sink(dg.to_memory())
    assert run(flow).sinks == ["mine", "to_memory", "to_memory_2"]


def names_of(flow: dg.Dataflow) -> list[str]:
    return [node.name for node in flow.nodes]


def test_an_automatic_name_gives_way_to_the_same_name_of_a_user() -> None:
    flow = dg.Dataflow("names")
    rows = flow.source(dg.from_iterable(ROWS))
    first = rows.filter(dg.col("key") > 0)
    second = rows.filter(dg.col("key") > 1)
    assert [first.name, second.name] == ["filter", "filter_2"]
    mine = rows.filter(dg.col("key") > 2, name="filter")
    assert [first.name, second.name, mine.name] == ["filter_3", "filter_2", "filter"]
    rows.filter(dg.col("key") > 2, name="filter_4")
    assert rows.filter(dg.col("key") > 3).name == "filter_5"
    second.named("filter_3").sink(dg.to_memory(name="rows"))
    assert names_of(flow) == ["rows_2", "filter_6", "filter_3", "filter", "filter_4", "filter_5", "rows"]
    assert run(flow).sinks == ["rows"]
    with pytest.raises(dg.FlowError, match="two operators with the name 'filter'"):
        first.named("filter")


def test_a_name_that_was_given_to_a_source_does_not_give_way() -> None:
    flow = dg.Dataflow("names")
    stream = flow.source(dg.from_iterable(ROWS)).filter(dg.col("key") > 0)
    mine = flow.source(dg.from_iterable(ROWS, name="filter"))
    again = flow.source(dg.from_iterable(ROWS, name="filter"))
    assert [stream.name, mine.name, again.name] == ["filter_2", "filter", "filter_3"]
    with pytest.raises(dg.FlowError, match="two operators with the name 'filter'"):
        stream.named("filter")


def test_late_rows_that_are_dropped_do_not_go_unnoticed(caplog: pytest.LogCaptureFixture) -> None:
    flow = dg.Dataflow("late")
    rows = flow.source(dg.from_iterable([*ROWS, {"key": 1, "at": 900}, {"key": 1, "at": 1}], time="at"))
    rows.window(dg.Tumbling("10ms")).aggregate(n=dg.count()).named("counts").sink(dg.to_memory())
    with caplog.at_level(logging.WARNING, "dirigo"):
        run(flow, rows_max=1)
    assert caplog.messages == [
        "1 row(s) came too late for 'counts' and were dropped; take them with .late, or raise the source's out_of_orderness"
    ]


@pytest.mark.parametrize(("name", "meant"), [("mean", "avg"), ("Tumble", "Tumbling"), ("Dataflw", "Dataflow")])
def test_a_name_from_elsewhere_is_understood(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
        getattr(dg, name)


def test_a_method_from_elsewhere_is_understood() -> None:
    stream = dg.Dataflow("hints").source(dg.from_iterable(ROWS, time="at"))
    with pytest.raises(AttributeError, match="did you mean 'key_by'"):
        _ = stream.group_by  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="call key_by"):
        _ = stream.aggregate  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="say first what becomes of the rows of a window"):
        _ = stream.window(dg.Tumbling("1s")).filter  # type: ignore[attr-defined]
    with pytest.raises(dg.FlowError, match=r"count\(\) has no name; write count\(\).alias"):
        stream.key_by("key").aggregate(dg.count())


def test_no_rows_at_a_time_are_refused() -> None:
    flow = dg.Dataflow("none")
    flow.source(dg.from_iterable(ROWS)).sink(dg.to_memory())
    with pytest.raises(dg.DirigoError, match="at least one row at a time, not 0"):
        run(flow, rows_max=0)
