"""Whether a sink that commits with snapshots shows each row exactly once, whatever happens between the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import msgspec
import pyarrow as pa

from dirigo.flow.sinks.sink import Sink, Writer
from dirigo.testing.findings import fail, multiset, require_same, rows_in, tried

Results = list[dict[str, Any]] | None


class CommitChecks:
    """Each check is a job of its own, in an empty folder. Every process has the sink as it was sent there."""

    def __init__(
        self,
        prepared: Callable[[str], Sink],
        arrived: Callable[[Sink], Sink],
        results: Callable[[Sink, str], Results],
        batches: Sequence[pa.RecordBatch],
    ) -> None:
        """``prepared(folder)`` makes a sink that is ready to be opened, and ``arrived`` what another process has of it."""
        self._prepared, self.arrived, self.results, self.batches = prepared, arrived, results, batches

    def run(self) -> None:
        if not self._is_transactional():
            return
        for check in (
            self._shown_by_commits,
            self._commits_left_out,
            self._lost_after_a_cut,
            self._lost_between_two_commits,
            self._old_writer_that_wakes_up,
            self._end,
            self._generation_that_ends,
            self._job_that_is_cancelled,
        ):
            with TemporaryDirectory() as folder:
                check(_Job(self, self._prepared(folder)))

    def _is_transactional(self) -> bool:
        with TemporaryDirectory() as folder:
            job = _Job(self, self._prepared(folder))
            writer = job.opened(0)
            job.write(writer, self.batches[0])
            is_transactional = tried(job.who, "be cut at a snapshot", writer.cut) is not None
            tried(job.who, "have let_go() called", writer.let_go)
            promised = job.sink.delivery
            if is_transactional and promised != "exactly once":
                fail(job.who, f"commits with snapshots and promises '{promised}'; set delivery to 'exactly once'")
            if not is_transactional and promised == "exactly once":
                fail(job.who, "promises 'exactly once', and its writers have no cut() to commit")
        return is_transactional

    def _shown_by_commits(self, job: _Job) -> None:
        first, second, third, *_ = self.batches
        writer = job.opened(0)
        job.require([], "before the first snapshot")
        job.write(writer, first)
        job.write(writer, second)
        job.require([], "before the first snapshot")
        cut = job.cut(writer)
        job.require([], "before the first snapshot is committed")
        job.write(writer, third)
        for times in ("is committed", "is committed twice"):
            job.commit(writer, cut)
            job.require([first, second], f"once a snapshot {times}")
        job.commit(job.opened(0), cut)
        job.require([first, second], "once a snapshot is committed by another writer as well")
        cut = job.cut(writer)
        job.commit(writer, cut)
        cut = job.cut(writer)
        job.commit(writer, cut)
        job.require([first, second, third], "after a snapshot with no new rows")

    def _commits_left_out(self, job: _Job) -> None:
        writer = job.opened(0)
        for batch in self.batches:
            job.write(writer, batch)
            cut = job.cut(writer)
        job.commit(writer, cut)
        job.require(self.batches, "when only the last of several snapshots is committed")

    def _lost_after_a_cut(self, job: _Job) -> None:
        first, second, third, *rest = self.batches
        lost = job.opened(0)
        job.write(lost, first)
        job.cut(lost)
        job.write(lost, second)
        cut = job.cut(lost)
        for batch in rest:
            job.write(lost, batch)
            job.cut(lost)
        writer = job.resumed(0, cut, generation=1)
        job.require([first, second], "once it went on from a snapshot, with more written before")
        job.write(writer, third)
        cut = job.cut(writer)
        job.commit(writer, cut)
        job.require([first, second, third], "after a snapshot of the writer that went on")
        for generation in (2, 3):
            writer = job.resumed(0, cut, generation=generation)
        for batch in rest:
            job.write(writer, batch)
        job.commit(writer, job.cut(writer))
        job.require(self.batches, "when it went on twice from the same snapshot")

    def _lost_between_two_commits(self, job: _Job) -> None:
        first, second, third, *_ = self.batches
        writers = [job.opened(partition) for partition in range(2)]
        for writer, batch in zip(writers, (first, second), strict=True):
            job.write(writer, batch)
        cuts = [job.cut(writer) for writer in writers]
        job.commit(writers[0], cuts[0])
        writers = [job.resumed(partition, cut, generation=1) for partition, cut in enumerate(cuts)]
        job.require([first, second], "when its process was lost between the commits of two partitions")
        job.write(writers[1], third)
        job.commit(writers[1], job.cut(writers[1]))
        job.require([first, second, third], "after a commit of one of two partitions")

    def _old_writer_that_wakes_up(self, job: _Job) -> None:
        first, second, third, fourth, *_ = self.batches
        old = job.opened(0)
        job.write(old, first)
        cut = job.cut(old)
        job.write(old, second)
        writer = job.resumed(0, cut, generation=1)
        job.write(writer, second)
        cut = job.cut(writer)
        with suppress(Exception):  # it may notice that it is no longer needed
            for batch in (third, fourth):
                old.write(batch)
                old.flush()
                old.cut()
        job.commit(writer, cut)
        with suppress(Exception):
            old.let_go()
        job.write(writer, third)
        job.commit(writer, job.cut(writer))
        job.require([first, second, third], "when a writer that was given up goes on")

    def _end(self, job: _Job) -> None:
        first, second, *_ = self.batches
        writers = [job.opened(partition) for partition in range(3)]
        for writer, batch in zip(writers, (first, second), strict=False):
            job.write(writer, batch)
        for writer in writers:
            tried(job.who, "be closed", writer.close)
        job.require([], "before the last snapshot is committed")
        cuts = [job.cut(writer) for writer in writers]
        job.require([], "before the last snapshot is committed")
        job.commit(writers[0], cuts[0])
        for partition in (1, 2):
            job.commit(job.opened(partition), cuts[partition])
        for writer in writers:
            tried(job.who, "have let_go() called after its end", writer.let_go)
        job.require([first, second], "at the end of a job with snapshots")

    def _generation_that_ends(self, job: _Job) -> None:
        first, second, *_ = self.batches
        writer = job.opened(0)
        job.write(writer, first)
        cut = job.cut(writer)
        job.write(writer, second)
        for _ in range(2):
            tried(job.who, "have let_go() called", writer.let_go)
        job.resumed(0, cut, generation=1)
        job.require([first], "after let_go() and a new beginning")

    def _job_that_is_cancelled(self, job: _Job) -> None:
        first, second, third, *_ = self.batches
        writer = job.opened(0)
        job.write(writer, first)
        job.commit(writer, job.cut(writer))
        job.write(writer, second)
        job.cut(writer)
        job.write(writer, third)
        tried(job.who, "be abandoned", writer.abandon)
        job.require([first], "of a job with snapshots that was cancelled")


class _Job:
    """The steps, each with the sentence of its failure."""

    def __init__(self, checks: CommitChecks, sink: Sink) -> None:
        self._checks = checks
        self.sink = sink
        self.who = f"sink '{sink.name}'"
        self._schema = checks.batches[0].schema

    def opened(self, partition: int, generation: int = 0) -> Writer:
        writer = tried(self.who, "be opened", lambda: self._checks.arrived(self.sink).open(self._schema, partition))
        tried(self.who, "be told to hold rows back", lambda: writer.hold_back(generation))
        return writer

    def resumed(self, partition: int, cut: Any, generation: int) -> Writer:
        writer = self.opened(partition, generation)
        tried(self.who, "go on from a snapshot", lambda: writer.resume(cut))
        return writer

    def write(self, writer: Writer, batch: pa.RecordBatch) -> None:
        tried(self.who, "be written to", lambda: writer.write(batch))
        tried(self.who, "flush what was written", writer.flush)

    def cut(self, writer: Writer) -> Any:
        """As it comes to another process, and with its files on the disk."""
        made = tried(self.who, "be cut at a snapshot", writer.cut)
        try:
            cut = msgspec.msgpack.decode(msgspec.msgpack.encode(made))
        except Exception as error:
            raise AssertionError(f"{self.who} has a cut that is no plain data ({error}): {made!r}.") from error
        if cut != made:
            fail(self.who, f"has a cut that is no plain data: it was {made!r} and comes back as {cut!r}")
        errors: list[Exception] = []

        def sync() -> None:
            try:
                writer.sync(cut)
            except Exception as error:
                errors.append(error)

        thread = Thread(target=sync)
        thread.start()
        thread.join()
        for raised in errors:
            fail(self.who, f"cannot bring a cut to the disk: {type(raised).__name__}: {raised}")
        return cut

    def commit(self, writer: Writer, cut: Any) -> None:
        tried(self.who, "commit a snapshot", lambda: writer.commit(cut))

    def require(self, written: Sequence[pa.RecordBatch], when: str) -> None:
        found = self._checks.results(self.sink, when)
        if found is not None:
            require_same(self.who, multiset(rows_in(written)), multiset(found), when)
