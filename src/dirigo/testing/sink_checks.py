"""Whether a sink keeps what every sink promises: the check that one of your own can be run through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.rows.row import batch_of
from dirigo.flow.sinks.sink import Sink, Writer, place_of
from dirigo.flow.sources.iterable import from_iterable
from dirigo.testing.findings import Held, fail, multiset, require_same, rows_in, sent, tried
from dirigo.testing.simulation import run
from dirigo.testing.sink_commit_checks import CommitChecks

Results: TypeAlias = pa.Table | Iterable[Mapping[str, Any]]
Again: TypeAlias = Literal["refuses", "replaces", "adds"]

_PARTITIONS: Final = 3
_BATCHES: Final = 4
_CUTS: Final = 5
_INTERVAL: Final = pa.MonthDayNano([1, 2, 3])
_SCHEMA: Final = pa.schema([("n", pa.int64()), ("text", pa.string())])
_TYPES: Final = (
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.decimal256(50, 2)),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary(3), pa.null()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin")),
    *(pa.duration("ms"), pa.duration("ns"), pa.month_day_nano_interval()),
    *(pa.list_(pa.int64()), pa.large_list(pa.string()), pa.list_(pa.int64(), 2), pa.struct([("a", pa.int64())])),
    *(pa.map_(pa.string(), pa.int64()), pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.struct([("a", pa.date32())]))),
)


def check_sink(
    make_sink: Callable[[Path], Sink],
    read_back: Callable[[Sink], Results] | None = None,
    *,
    schema: pa.Schema = _SCHEMA,
    rows: Sequence[Mapping[str, Any]] | None = None,
    again: Again = "refuses",
    shows_at_once: bool = False,
    takes_any_columns: bool = True,
) -> None:
    """Raise AssertionError with one sentence if a sink breaks a promise that jobs and workers rely on.

    ``make_sink(folder)`` makes a sink that writes, if it writes files, at a place of its own in an empty folder; with the
    same folder, it is the same place. ``read_back(sink)`` gives all results that are visible there: an Arrow table, whose
    types are compared as well, or rows. Without it, nothing is asked about results. ``rows`` of ``schema`` are what is
    written. ``again`` says what becomes of earlier results when a second job begins. ``shows_at_once`` is for a sink whose
    rows are visible after each batch, and not only at the end. A sink whose writers have a ``cut`` is taken through
    snapshots, losses and recoveries as well. With ``takes_any_columns=False`` it is not tried with columns of all types of
    Arrow.
    """
    if again not in get_args(Again):
        raise DirigoError(f"again= is one of {', '.join(get_args(Again))}, not {again!r}.")
    given = [{"n": number, "text": f"row {number}"} for number in range(24)] if rows is None else list(rows)
    if len(given) < _PARTITIONS * _BATCHES:
        raise DirigoError(f"a check of a sink needs at least {_PARTITIONS * _BATCHES} rows, not {len(given)}.")
    check = _Check(make_sink, read_back, batch_of(given, schema), again, shows_at_once)
    check.description()
    check.all_rows_once()
    check.nothing_at_all()
    check.end_in_the_middle()
    check.second_job()
    check.commits()
    if takes_any_columns:
        for kind in _TYPES:
            check.column_of(kind)
    check.in_a_flow()


class _Check:
    """One sink, and what it is to be given. Every check has a folder of its own."""

    def __init__(
        self,
        make_sink: Callable[[Path], Sink],
        read_back: Callable[[Sink], Results] | None,
        rows: pa.RecordBatch,
        again: Again,
        shows_at_once: bool,
    ) -> None:
        self._make_sink, self._read_back = make_sink, read_back
        self._rows, self._again, self._shows_at_once = rows, again, shows_at_once
        self._who = "the sink"

    def description(self) -> None:
        with TemporaryDirectory() as one, TemporaryDirectory() as other:
            sink = self._made(one)
            if list(Path(one).iterdir()):
                fail(self._who, "touches its place before it is prepared; leave that to prepare() and open()")
            place, same, different = (place_of(each) for each in (sink, self._made(one), self._made(other)))
            if place != same:
                fail(self._who, f"calls its place '{place}', and when it is made again '{same}', so two jobs could share it")
            if place is not None and place == different:
                fail(self._who, f"calls two places '{place}', so that one job would have to wait for the other")
            if place is None and self._again != "adds" and not sink.is_outside:
                fail(
                    self._who,
                    f"{self._again} earlier results but names no place, so two jobs could run there at once",
                )

    def all_rows_once(self) -> None:
        """Several partitions at once, each in its own process, and one of them without rows."""
        with TemporaryDirectory() as folder:
            sink, writers = self._opened(folder, self._rows.schema, _PARTITIONS + 1)
            written: list[pa.RecordBatch] = []
            for batch in _batches(self._rows):
                self._write(writers[len(written) % _PARTITIONS], batch)
                written.append(batch)
                if self._shows_at_once:
                    self._require(sink, written, "after each batch")
            for writer in writers:
                self._end(writer, "close")
            self._require(sink, written, "at the end")

    def nothing_at_all(self) -> None:
        with TemporaryDirectory() as folder:
            sink, writers = self._opened(folder, self._rows.schema, _PARTITIONS)
            for writer in writers:
                self._end(writer, "close")
            self._require(sink, [], "of a job without rows")

    def end_in_the_middle(self) -> None:
        """What is visible of a job that failed or was cancelled is whole, and was written."""
        with TemporaryDirectory() as folder:
            held = Held()
            sink, writers = self._opened(folder, self._rows.schema, _PARTITIONS)
            written: list[pa.RecordBatch] = []
            for batch in _batches(self._rows):
                self._write(writers[len(written) % _PARTITIONS], batch)
                written.append(batch)
            for writer in writers:
                self._end(writer, "abandon")
            held.require_no_more(self._who, "after its writers were told to abandon their work")
            found = self._results(sink, "after its job was cancelled")
            if found is None:
                return
            some, everything = multiset(found), multiset(rows_in(written))
            if some - everything:
                fail(
                    self._who,
                    f"shows rows of a cancelled job that were never written: {list(some - everything)[:3]}",
                )
            if self._shows_at_once:
                require_same(self._who, everything, some, "after its job was cancelled")

    def second_job(self) -> None:
        with TemporaryDirectory() as folder:
            first = self._written(folder, self._rows)
            before = self._results(first, "of a first job")
            second = self._made(folder)
            part = self._rows.slice(0, _PARTITIONS)
            try:
                second.prepare(part.schema)
            except DirigoError as error:
                if self._again != "refuses":
                    fail(
                        self._who,
                        f"refuses earlier results ({error}) and is said to be one that {self._again} them",
                    )
                left = self._results(first, "after a second job was refused")
                if before is not None and left is not None:
                    require_same(self._who, multiset(before), multiset(left), "after a second job was refused")
                return
            if self._again == "refuses":
                fail(self._who, "takes a place with earlier results and is said to be one that refuses them")
            self._write_all(self._sent(second), part)
            found = self._results(second, "of a second job")
            if before is not None and found is not None:
                kept = multiset(before) if self._again == "adds" else Counter[str]()
                expected = kept + multiset(rows_in([part]))
                require_same(self._who, expected, multiset(found), f"of a second job, which {self._again} earlier results")

    def commits(self) -> None:
        """Only of those whose writers have cuts."""

        def prepared(folder: str) -> Sink:
            sink = self._made(folder)
            tried(self._who, "be prepared", lambda: sink.prepare(self._rows.schema))
            return sink

        CommitChecks(prepared, self._sent, self._results, _batches(self._rows)[:_CUTS]).run()

    def column_of(self, kind: pa.DataType) -> None:
        """A type is refused before the job starts, or kept."""
        batch = pa.record_batch([pa.concat_arrays([_sample(kind), pa.nulls(1, kind)])], names=["value"])
        with TemporaryDirectory() as folder:
            sink = self._made(folder)
            try:
                sink.prepare(batch.schema)
            except DirigoError:
                return
            except Exception as error:
                self._fail_for(kind, f"makes prepare() raise {type(error).__name__} instead of a DirigoError", error)
            try:
                self._write_all(self._sent(sink), batch)
                found = self._results(sink, "")
            except Exception as error:
                self._fail_for(kind, f"is taken by prepare() and cannot be written or read back: {error}", error)
            if found is not None and len(found) != batch.num_rows:
                self._fail_for(kind, f"is taken by prepare(), but of {batch.num_rows} rows {len(found)} come back", None)
            has_value = not pa.types.is_null(kind)
            if has_value and found is not None and all(value is None for row in found for value in row.values()):
                self._fail_for(kind, "is taken by prepare(), but its values come back as null", None)

    def in_a_flow(self) -> None:
        with TemporaryDirectory() as folder:
            sink = self._made(folder)
            flow = Dataflow("conformance", partitions=_PARTITIONS)
            stream = flow.source(from_iterable(pa.Table.from_batches([self._rows])))
            stream.deduplicate().sink(sink)
            tried(self._who, "take the rows of a flow", lambda: run(flow, writes=True, workers=2, chaos=True, rows_max=5))
            different = dict.fromkeys(multiset(rows_in([self._rows])), 1)
            found = self._results(sink, "of a flow")
            if found is not None:
                require_same(self._who, Counter(different), multiset(found), "of a flow with chaos")

    # --- steps ---------------------------------------------------------------------------------------------------------

    def _made(self, folder: str) -> Sink:
        sink = self._make_sink(Path(folder))
        if not isinstance(sink, Sink):
            fail("what make_sink returns", f"is no Sink but {sink!r}")
        self._who = f"sink '{sink.name}'"
        return sink

    def _sent(self, sink: Sink) -> Sink:
        """As it is at a worker. One whose rows are taken outside stays where it was made."""
        return sink if sink.is_outside else sent(self._who, sink)

    def _opened(self, folder: str, schema: pa.Schema, partitions: int) -> tuple[Sink, list[Writer]]:
        sink = self._made(folder)
        shipped = self._sent(sink)  # before it is prepared, as it is for a job
        tried(self._who, "be prepared", lambda: sink.prepare(schema))
        self._sent(sink)
        writers = []
        for partition in range(partitions):
            writer = tried(self._who, "be opened", lambda partition=partition: self._sent(shipped).open(schema, partition))  # type: ignore[misc]
            if not isinstance(writer, Writer):
                fail(self._who, f"is opened with {writer!r}, which is no Writer")
            writers.append(writer)
        return sink, writers

    def _write(self, writer: Writer, batch: pa.RecordBatch) -> None:
        tried(self._who, "be written to", lambda: writer.write(batch))
        tried(self._who, "flush what was written", writer.flush)
        size = writer.held_bytes()
        if size < 0:
            fail(self._who, f"says that it holds {size!r} bytes")

    def _end(self, writer: Writer, how: Literal["close", "abandon"]) -> None:
        end = writer.close if how == "close" else writer.abandon
        tried(self._who, f"have {how}() called", end)
        tried(self._who, f"have {how}() called twice", end)
        tried(self._who, f"be abandoned after {how}()", writer.abandon)

    def _write_all(self, sink: Sink, batch: pa.RecordBatch) -> None:
        writer = sink.open(batch.schema, 0)
        writer.write(batch)
        writer.flush()
        writer.close()

    def _written(self, folder: str, batch: pa.RecordBatch) -> Sink:
        sink = self._made(folder)
        tried(self._who, "be prepared", lambda: sink.prepare(batch.schema))
        tried(self._who, "be written to", lambda: self._write_all(self._sent(sink), batch))
        return sink

    def _results(self, sink: Sink, when: str) -> list[dict[str, Any]] | None:
        found = self._found(sink, when)
        return rows_in(found.to_batches()) if isinstance(found, pa.Table) else found

    def _found(self, sink: Sink, when: str) -> pa.Table | list[dict[str, Any]] | None:
        if self._read_back is None:
            return None
        read_back = self._read_back

        def read() -> pa.Table | list[dict[str, Any]]:
            found = read_back(sink)
            return found if isinstance(found, pa.Table) else [dict(row) for row in found]

        return tried(self._who, f"have its results read {when}", read)

    def _require(self, sink: Sink, written: Sequence[pa.RecordBatch], when: str) -> None:
        found = self._found(sink, when)
        if found is None:
            return
        if isinstance(found, pa.Table):
            for field in self._rows.schema:
                kind = found.schema.field(field.name).type if field.name in found.schema.names else None
                if kind != field.type:
                    fail(self._who, f"has the column '{field.name}' as {kind}, {when}, and was given {field.type}")
            found = rows_in(found.to_batches())
        require_same(self._who, multiset(rows_in(written)), multiset(found), when)

    def _fail_for(self, kind: pa.DataType, what: str, error: Exception | None) -> None:
        raise AssertionError(f"{self._who}: a column of {kind} {what}; refuse it in prepare().") from error


def _batches(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    size = -(-rows.num_rows // (_PARTITIONS * _BATCHES))
    return [rows.slice(start, size) for start in range(0, rows.num_rows, size)]


def _sample(kind: pa.DataType) -> pa.Array:
    """One value of a type."""
    if pa.types.is_dictionary(kind):
        return pa.array(["a"]).dictionary_encode().cast(kind)
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_sample(field.type) for field in kind], fields=list(kind))
    if pa.types.is_map(kind):
        return pa.array([[("a", 1)]], kind)
    if pa.types.is_nested(kind):
        values = _sample(kind.value_type).to_pylist() * (kind.list_size if pa.types.is_fixed_size_list(kind) else 1)
        return pa.array([values], kind)
    for value in (date(2024, 1, 31), 1, True, "a", b"abc", Decimal(1), time(1), timedelta(seconds=1), _INTERVAL, None):
        try:
            return pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError):
            continue
    raise AssertionError(f"there is no value of {kind}")
