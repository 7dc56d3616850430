"""Every source and sink of ours, run through the checks that users get for their own."""

from __future__ import annotations

import io
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dirigo as dg
from dirigo.flow.sinks import MemorySink
from dirigo.flow.sinks.console import ConsoleSink
from dirigo.flow.sources.pushed import PushedSource, PushedSplit, ReleasedRows
from dirigo.testing import check_sink, check_source

ROWS = [{"n": n, "at": n * 10, "text": f"row {n}", "share": n / 4} for n in range(60)]
SCHEMA = {"n": int, "at": int, "text": str, "share": float}


def made(first: int, count: int) -> list[dict[str, Any]]:
    return [{"n": n, "at": n * 10, "text": f"row {n}", "share": n / 4} for n in range(first, first + count)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The rows in three files of each format."""
    for kind in ("csv", "jsonl", "parquet"):
        (tmp_path / kind).mkdir()
    for number in range(3):
        rows = ROWS[number * 20 : number * 20 + 20]
        lines = [",".join(map(str, row.values())) for row in rows]
        (tmp_path / "csv" / f"{number}.csv").write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
        (tmp_path / "jsonl" / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "parquet" / f"{number}.parquet")
    return tmp_path


FILES: dict[str, Callable[[Path], dg.Source]] = {
    "csv": lambda folder: dg.from_csv(folder / "csv", time="at"),
    "csv with a schema": lambda folder: dg.from_csv(folder / "csv", SCHEMA, time="at"),
    "json_lines": lambda folder: dg.from_json_lines(folder / "jsonl", time="at"),
    "parquet": lambda folder: dg.from_parquet(folder / "parquet", time="at"),
}


@pytest.mark.parametrize("kind", FILES)
def test_files(files: Path, kind: str) -> None:
    check_source(lambda: FILES[kind](files), ROWS, bad_rows=0)


def test_files_with_bad_rows(files: Path) -> None:
    with (files / "csv" / "1.csv").open("a") as file:
        file.write("no number,1,x,1.0\n1,2\n")
    with (files / "jsonl" / "2.jsonl").open("a") as file:
        file.write("{\n[]\n")
    check_source(lambda: dg.from_csv(files / "csv", SCHEMA), ROWS, bad_rows=2)
    check_source(lambda: dg.from_json_lines(files / "jsonl", SCHEMA), ROWS, bad_rows=2)


OTHERS: dict[str, Callable[[], dg.Source]] = {
    "a list": lambda: dg.from_iterable(ROWS, time="at"),
    "a function": lambda: dg.from_iterable(lambda: iter(ROWS), SCHEMA, time="at"),
    "a table": lambda: dg.from_iterable(pa.Table.from_pylist(ROWS), time="at"),
    "generator": lambda: dg.from_generator(made, SCHEMA, 60, block=7, time="at"),
    "paced": lambda: dg.paced(dg.from_iterable(ROWS, time="at")),
    "paced fast": lambda: dg.paced(dg.from_generator(made, SCHEMA, 60, block=7, time="at"), speed=1000),
    "shaped": lambda: dg.shaped(dg.from_generator(made, SCHEMA, 60, block=4, time="at"), dg.loads.constant("10/s"), skew=1),
    "shaped in bursts": lambda: dg.shaped(dg.from_iterable(ROWS), dg.loads.square(1, "50/s", period="4s")),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_made_in_python(kind: str) -> None:
    check_source(OTHERS[kind], ROWS, bad_rows=0)


def test_bad_rows_in_python() -> None:
    check_source(lambda: dg.from_iterable([*ROWS, {"n": "x"}], SCHEMA), ROWS, bad_rows=1)


def test_a_python_generator_is_read_once_and_stays_where_it_is() -> None:
    check_source(lambda: dg.from_iterable(iter(ROWS), SCHEMA), ROWS, reads_again=False, travels=False)


def test_a_generator_without_an_end() -> None:
    check_source(lambda: dg.from_generator(made, SCHEMA, block=7, time="at"), ROWS)
    check_source(lambda: dg.shaped(dg.from_generator(made, SCHEMA, block=2), dg.loads.constant("100/s")), ROWS)


@pytest.mark.parametrize("make", [dg.nexmark.bids, dg.nexmark.auctions, dg.nexmark.persons])
def test_nexmark(make: Callable[..., dg.Source]) -> None:
    check_source(lambda: make(2_000, block_events=100))


def test_lines_of_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        Thread(target=_serve, args=(server,), daemon=True).start()
        lines = [{"line": row["text"]} for row in ROWS]
        try:
            check_source(lambda: dg.from_socket("127.0.0.1", port), lines, bad_rows=0)
        finally:
            server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket) -> None:
    while True:
        try:
            peer, _ = server.accept()
            with peer:
                peer.sendall("".join(f"{row['text']}\n" for row in ROWS).encode())
        except OSError:  # the test is over, or does not want more
            if server.fileno() < 0 or not _is_listening(server):
                return


def _is_listening(server: socket.socket) -> bool:
    return bool(server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


class Line:
    """Micro-batches that are there already, and stay."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = list(batches)
        self.next_number = 1

    @property
    def ended(self) -> bool:
        return self.next_number > len(self._batches)

    def take(self) -> ReleasedRows | None:
        if self.ended:
            return None
        number = self.next_number
        self.next_number += 1
        return ReleasedRows(iter([self._batches[number - 1]]), reached_ms=0, number=number)

    def seek(self, number: int) -> None:
        self.next_number = number


class PushedRows(PushedSource):
    """Rows that were pushed before anybody read them: half a batch to each split. Their queues keep what was taken."""

    @property
    def is_replayable(self) -> bool:
        return True

    def splits(self, wanted: int) -> list[dg.Split]:
        splits = list(super().splits(wanted))
        rows = pa.RecordBatch.from_pylist(ROWS, self.schema)
        for number, split in enumerate(splits):
            assert isinstance(split, PushedSplit)
            size = -(-len(ROWS) // wanted)
            part = rows.slice(number * size, size)
            split.attach(Line([part.slice(0, 5), part.slice(5)]))
        return splits


def test_rows_that_are_pushed() -> None:
    check_source(lambda: PushedRows(SCHEMA, is_bounded=True), ROWS, bad_rows=0)


MODES: dict[Any, Any] = {"overwrite": "replaces", "append": "adds"}


# --- sinks -----------------------------------------------------------------------------------------------------------------


def parquet_files(sink: dg.Sink) -> pa.Table:
    assert isinstance(sink.place, Path)
    return pa.concat_tables(pq.read_table(file) for file in sorted(sink.place.glob("part-*.parquet")))


def parquet_rows(sink: dg.Sink) -> pa.Table | list[dict[str, Any]]:
    assert isinstance(sink.place, Path)
    return parquet_files(sink) if list(sink.place.glob("part-*.parquet")) else []


def json_rows(sink: dg.Sink) -> Iterator[dict[str, Any]]:
    assert isinstance(sink.place, Path)
    for file in sorted(sink.place.glob("part-*.jsonl")):
        text = file.read_text()
        assert not text or text.endswith("\n"), "only whole lines are visible"
        yield from map(json.loads, text.splitlines())


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost with the power here, so nobody need wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.usefixtures("disk")
def test_to_parquet() -> None:
    check_sink(lambda folder: dg.to_parquet(folder / "out"), parquet_rows)
    check_sink(lambda folder: dg.to_parquet(folder / "out", rows_per_file=3), parquet_rows, takes_any_columns=False)
    for mode, again in MODES.items():
        check_sink(
            lambda folder, mode=mode: dg.to_parquet(folder / "out", mode=mode),  # type: ignore[misc]
            parquet_rows,
            again=again,
            takes_any_columns=False,
        )


@pytest.mark.usefixtures("disk")
def test_to_json_lines() -> None:
    check_sink(lambda folder: dg.to_json_lines(folder / "out"), json_rows, shows_at_once=True)
    check_sink(lambda folder: dg.to_json_lines(folder / "out", roll_every="1s"), json_rows, takes_any_columns=False)
    for mode, again in MODES.items():
        check_sink(
            lambda folder, mode=mode: dg.to_json_lines(folder / "out", mode=mode),  # type: ignore[misc]
            json_rows,
            again=again,
            takes_any_columns=False,
        )


def collected(sink: dg.Sink) -> pa.Table:
    assert isinstance(sink, MemorySink)
    return sink.table


def test_collect() -> None:
    check_sink(lambda _: dg.to_memory(), collected, again="replaces", shows_at_once=True)


class Called:
    """A list in a file, so that every sink made for a folder has the same."""

    def __init__(self) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {}

    def sink(self, folder: Path, batches: bool) -> dg.Sink:
        rows = self.lists.setdefault(str(folder), [])
        made = dg.to_callback(
            (lambda batch: rows.extend(batch.to_pylist())) if batches else (lambda row: rows.append(row.asdict())), batches
        )
        made.rows = rows  # type: ignore[attr-defined]
        return made


@pytest.mark.parametrize("batches", [False, True])
def test_to_callback(batches: bool) -> None:
    called = Called()
    check_sink(
        lambda folder: called.sink(folder, batches),
        lambda sink: sink.rows,  # type: ignore[attr-defined]
        again="adds",
        shows_at_once=True,
        takes_any_columns=False,
    )


def test_to_console() -> None:
    files: dict[str, io.StringIO] = {}

    def shown(sink: dg.Sink) -> list[dict[str, Any]]:
        assert isinstance(sink, ConsoleSink)
        assert isinstance(sink._file, io.StringIO)
        lines = sink._file.getvalue().splitlines()
        return [{"n": int(line.split()[0][2:]), "text": line.partition("text=")[2]} for line in lines]

    check_sink(
        lambda folder: dg.to_console(file=files.setdefault(str(folder), io.StringIO())),
        shown,
        again="adds",
        shows_at_once=True,
        takes_any_columns=False,
    )
    check_sink(lambda _: dg.to_console(file=io.StringIO()), again="adds")


def test_discard() -> None:
    check_sink(lambda _: dg.to_nothing(), again="adds")
