"""What outsiders push to one split of a source: staged on disk per attempt, and read once its micro-batch is committed.

An attempt is a file, an Arrow stream. Committing a micro-batch releases the files of its winners into a queue, once and
never again; they are read through memory maps and deleted, so that memory stays flat however much is waiting. With
snapshots, they are on disk before a commit is confirmed, and deleted when a committed snapshot covers them: see ``kept``.
"""

from __future__ import annotations

import shutil
import time as clocks
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec
import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.sources.pushed import ReleasedRows
from dirigo.flow.sources.reader import newest_of
from dirigo.runtime.ingest.kept import Commit, KeptFiles, KeptRelease, NotOursError, Owner, Piece, Seal
from dirigo.runtime.ingest.pusher import Arrival, StagingAck, StagingHeader

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_SUFFIX: Final = ".arrow"
_QUERIES_REMEMBERED: Final = 4096
_BETWEEN_MS: Final = 500  # that Spark takes at most from the commit of a micro-batch to the next one if rows wait
_ATTEMPTS_REMEMBERED: Final = 4096  # that are gone; a copy of a push may be long on its way

Frame = bytes | memoryview


class StagingError(DirigoError):
    """Rows cannot be staged or released. The message is one sentence; nothing that was staged before is lost by it."""


class StagingMovedError(StagingError):
    """Another worker takes in the rows of the split by now."""


@dataclass
class _Attempt:
    """What one attempt has brought so far."""

    path: Path
    touched_s: float
    pushes: int = 0
    rows: int = 0
    size: int = 0
    newest_ms: int | None = None
    oldest_ms: int | None = None
    reached_ms: int | None = None
    arrival: Arrival | None = None


class Staging:
    """Everything that was pushed to one split and not yet read.

    Two threads may use it: one stages, seals, releases, drops, ends and closes; another one takes. What both touch, which is
    the queue of released files, is under a lock that is never held during input or output. ``queued_bytes`` is for anybody.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        *,
        time: str | None = None,
        owner: Owner | None = None,
        attempts_most: int = 65_536,
        open_for_s: float = 3_600.0,
        sealed_for_s: float = 86_400.0,
        reserve_bytes: int = 256 << 20,
        clock: Callable[[], float] = clocks.monotonic,
        wall_clock: Callable[[], float] = clocks.time,
    ) -> None:
        """Stage in ``folder``, which is nobody else's.

        ``owner``: the generation of a job with snapshots that reads the split now, and which placement of it. Then the
        folder outlives this object, which goes on with all that earlier owners have sealed or released, and that no
        committed snapshot covers.
        An attempt that gets nothing for ``open_for_s``, or is not released within ``sealed_for_s`` after its end (a large
        batch query commits at its very end), is forgotten. ``reserve_bytes`` of the disk are left to others.
        """
        self.folder = folder
        self.schema = schema
        self._time = None if time is None else TimeColumn.of(schema, time, "staging")
        self._attempts_most = attempts_most
        self._open_for_s = open_for_s
        self._sealed_for_s = sealed_for_s
        self._reserve_bytes = reserve_bytes
        self._clock = clock
        self._wall_clock = wall_clock
        self._open: OrderedDict[str, _Attempt] = OrderedDict()  # the longest untouched first
        self._sealed: OrderedDict[str, _Attempt] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._files_made = 0
        self._last: OrderedDict[str, Commit] = OrderedDict()  # by query: ids of micro-batches only grow
        self._lock = Lock()
        self._released: deque[ReleasedRows] = deque()
        self._queued_bytes = 0
        self._taken = 0  # the number of the release that was taken last
        self._has_ended = False
        self._kept: KeptFiles | None = None
        try:
            if owner is not None:
                self._kept = KeptFiles(folder, owner)
                self._take_over(self._kept)
                return
            folder.mkdir(parents=True, exist_ok=True)
            for left_over in folder.glob(f"*{_SUFFIX}"):
                left_over.unlink()
        except (OSError, msgspec.MsgspecError) as error:
            raise self._disk_error(error) from None

    # --- the thread that stages ----------------------------------------------------------------------------------------

    def receive(self, header: StagingHeader, frames: Sequence[Frame]) -> StagingAck:
        """Do what a push asks for, and say how it went."""
        attempt = header.attempt
        try:
            if header.is_dropped:
                self.drop([attempt])
                return StagingAck(attempt, header.number)
            if attempt in self._gone:
                raise self._unknown(attempt)
            known = self._open.get(attempt) or self._sealed.get(attempt)
            due = 0 if known is None else known.pushes
            if header.number > due:
                return StagingAck(attempt, due - 1, is_missing=True)
            if header.number == due:
                self.stage(attempt, frames)
                if header.last:
                    self.seal(attempt, header.reached_ms, header.arrival)
            number = max(due - 1, header.number)  # of a copy, too
            sealed = self._sealed.get(attempt)
            if sealed is None:
                return StagingAck(attempt, number)
            return StagingAck(attempt, number, newest_ms=sealed.newest_ms, oldest_ms=sealed.oldest_ms)
        except StagingError as error:
            return StagingAck(attempt, header.number, str(error), has_moved=isinstance(error, StagingMovedError))

    def stage(self, attempt: str, frames: Sequence[Frame]) -> None:
        """Write record batch messages to the attempt's file."""
        if attempt in self._sealed:
            raise StagingError(f"The attempt {attempt} is complete and takes no more rows; begin a new one.")
        staged = self._open.get(attempt)
        if staged is None:
            staged = self._begin(attempt)
        try:
            batches = [self._checked(frame) for frame in frames]
            if frames:  # an attempt without rows only tells the time, and needs no file
                self._write(staged, frames)
        except (OSError, StagingError) as error:
            self.drop([attempt])  # the task fails, and its next try is another attempt
            raise self._disk_error(error) if isinstance(error, OSError) else error from None
        for batch in batches:
            self._note(staged, batch)
        staged.pushes += 1
        staged.touched_s = self._clock()
        self._open.move_to_end(attempt)

    def seal(self, attempt: str, reached_ms: int | None = None, arrival: Arrival | None = None) -> int:
        """Take an attempt for complete; returns its rows.

        ``reached_ms``: how far the whole micro-batch is in event time. ``arrival``: what is known of when its rows came.
        """
        staged = self._open.get(attempt)
        if staged is None:
            raise self._unknown(attempt)
        try:
            if self._kept is not None and not staged.size:
                self._write(staged, ())
            if staged.size:
                with staged.path.open("ab") as file:
                    staged.size += file.write(_END_OF_STREAM)
            if self._kept is not None:
                counts = (staged.pushes, staged.rows, staged.size)
                self._kept.seal(staged.path, Seal(attempt, *counts, staged.newest_ms, staged.oldest_ms, reached_ms, arrival))
        except OSError as error:
            self.drop([attempt])
            raise self._disk_error(error) from None
        staged.touched_s = self._clock()
        staged.reached_ms = reached_ms
        staged.arrival = arrival
        self._sealed[attempt] = self._open.pop(attempt)
        return staged.rows

    def release(self, query: str, batch: int, attempts: Sequence[str]) -> bool:
        """Put what the winners of a micro-batch staged into the queue. False: it was there before, and they are dropped."""
        if self.has_released(query, batch):
            self.drop(attempts)
            return False
        names = list(dict.fromkeys(attempts))
        self.check(query, batch, names)
        winners = [self._sealed[attempt] for attempt in names]
        arrival = next((each.arrival for each in winners if each.arrival is not None), None)
        arrived_s = None if arrival is None else self._arrived_s(arrival, self._last.get(query))
        began_ms = None if arrival is None else arrival.began_ms
        commit = Commit(batch, began_ms, self._now_ms())
        reached = max((each.reached_ms for each in winners if each.reached_ms is not None), default=None)
        pieces = tuple(Piece(each.path.name, each.rows, each.size) for each in winners if each.rows)
        release = KeptRelease(query, commit, pieces, reached, arrived_s)
        if self._kept is None:
            self._take_in(release, None)
        else:
            try:
                numbers = self._kept.release(release)
            except (OSError, msgspec.MsgspecError) as error:
                raise self._disk_error(error) from None
            for number in numbers:
                self._take_in(self._kept.releases[number], number)
            if self._kept.releases[numbers[-1]] is not release:  # it was there
                self.drop(names)
                return False
        for attempt in names:
            self._sealed.pop(attempt, None)
        self._remember(names)
        for each in winners:
            if not each.rows:
                each.path.unlink(missing_ok=True)
        return True

    def _take_in(self, release: KeptRelease, number: int | None) -> None:
        """What was released goes into the queue; its files belong to no attempt any more."""
        files = {piece.file for piece in release.pieces}
        for attempt in [each for each, sealed in self._sealed.items() if sealed.path.name in files]:
            del self._sealed[attempt]
        self._last[release.query] = release.commit
        self._last.move_to_end(release.query)
        if len(self._last) > _QUERIES_REMEMBERED:
            forgotten, _ = self._last.popitem(last=False)
            if self._kept is not None:
                self._kept.last.pop(forgotten, None)
        self._queue(release, number)

    def _queue(self, release: KeptRelease, number: int | None) -> None:
        rows = ReleasedRows(self._read(release.pieces), release.reached_ms, release.arrived_s, number)
        with self._lock:
            self._released.append(rows)
            self._queued_bytes += sum(piece.size for piece in release.pieces)

    def _take_over(self, kept: KeptFiles) -> None:
        """Go on with what others have staged and released."""
        self._last.update(kept.last)
        for path, seal in kept.sealed():
            self._sealed[seal.attempt] = self._attempt_of(path, seal)
        for number, release in kept.releases.items():
            self._queue(release, number)

    def _attempt_of(self, path: Path, seal: Seal) -> _Attempt:
        """One that somebody has brought to its end."""
        return _Attempt(
            path,
            self._clock(),
            seal.pushes,
            seal.rows,
            seal.size,
            seal.newest_ms,
            seal.oldest_ms,
            seal.reached_ms,
            seal.arrival,
        )

    def forget_before(self, number: int) -> None:
        """A snapshot was committed that goes on with this release, or amid it: those before it are not read again."""
        if self._kept is not None:
            try:
                self._kept.forget_before(number)
            except OSError as error:
                raise self._disk_error(error) from None

    def check(self, query: str, batch: int, attempts: Sequence[str]) -> None:
        """Whether these attempts can be released, all of them; or they were before."""
        if self.has_released(query, batch):
            return
        for attempt in attempts:
            if attempt not in self._sealed and not self._find(attempt):
                raise self._unknown(attempt)
        if self._has_ended:
            raise StagingError("The source has ended and takes no more rows; submit the job again.")

    def _find(self, attempt: str) -> bool:
        """Whether an attempt is there that was complete only when this reader had taken the split over."""
        try:
            seal = None if self._kept is None else self._kept.seal_of(attempt)
        except OSError as error:
            raise self._disk_error(error) from None
        if self._kept is None or seal is None:
            return False
        self._sealed[attempt] = self._attempt_of(self._kept.path_of(attempt), seal)
        return True

    def has_released(self, query: str, batch: int) -> bool:
        """Whether a micro-batch is in the queue, or was."""
        last = self._last.get(query)
        return last is not None and batch <= last.batch

    def _arrived_s(self, arrival: Arrival, last: Commit | None) -> float:
        """When the oldest row of a micro-batch came: by its event time, if it can have come then.

        No row came after its micro-batch was planned, nor before Spark last looked for rows: that was when it planned the
        micro-batch before, or, if it had nothing to do since, a trigger's interval ago. An event time beyond these bounds is
        no clock of arrivals; without one that is, the row counts as if it had come right after that look. (Spark may also
        have left rows for later, as with maxFilesPerTrigger: of that nobody tells.)
        """
        began_ms = looked_ms = arrival.began_ms
        if last is not None and last.began_ms is not None:
            has_idled = began_ms - last.released_ms > arrival.every_ms + _BETWEEN_MS
            looked_ms = max(last.began_ms, began_ms - arrival.every_ms) if has_idled else min(began_ms, last.began_ms)
        oldest_ms = looked_ms if arrival.oldest_ms is None else min(max(arrival.oldest_ms, looked_ms), began_ms)
        return min(oldest_ms, self._now_ms()) / 1000

    def _now_ms(self) -> int:
        return int(self._wall_clock() * 1000)

    def drop(self, attempts: Sequence[str]) -> None:
        """Forget attempts that will not be released, as far as they are known."""
        self._remember(attempts)
        for attempt in attempts:
            staged = self._open.pop(attempt, None) or self._sealed.pop(attempt, None)
            if staged is not None:
                staged.path.unlink(missing_ok=True)

    def end(self) -> None:
        """Nothing more will be released. What has been is still read."""
        with self._lock:
            self._has_ended = True

    def close(self) -> None:
        """The job goes: delete everything, unless it is kept. What was taken may still be read to the end of its file."""
        self._open.clear()
        self._sealed.clear()
        with self._lock:
            self._has_ended = True
            self._released.clear()
            self._queued_bytes = 0
        if self._kept is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- the thread that reads: see flow.sources.pushed.Queue ----------------------------------------------------------

    @property
    def ended(self) -> bool:
        with self._lock:
            return self._has_ended and not self._released

    def take(self) -> ReleasedRows | None:
        with self._lock:
            if not self._released:
                return None
            taken = self._released.popleft()
            self._taken = taken.number or 0
            return taken

    @property
    def next_number(self) -> int | None:
        return None if self._kept is None else self._taken + 1

    def seek(self, number: int) -> None:
        """Begin with the release of this number: those before it were read, and a snapshot covers that."""
        assert self._kept is not None, "only what is kept can be sought"
        if not self._kept.first <= number <= self._kept.next:
            raise StagingError(
                f"The rows that were staged in {self.folder} are not those of the snapshot: it goes on with release "
                f"{number}, and there are {self._kept.first} to {self._kept.next - 1}; submit the job again."
            )
        with self._lock:
            while self._released and (self._released[0].number or 0) < number:
                passed = self._kept.releases[self._released.popleft().number or 0]
                self._queued_bytes -= sum(piece.size for piece in passed.pieces)
            self._taken = number - 1

    def queued_bytes(self) -> int:
        """ReleasedRows, and not yet read."""
        with self._lock:
            return self._queued_bytes

    def _read(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        for piece in pieces:
            path = self.folder / piece.file
            # Batches keep the map of their file alive, also when it is deleted.
            with pa.memory_map(str(path)) as file:
                yield from pa.ipc.open_stream(file)
            if self._kept is None:
                path.unlink(missing_ok=True)
            with self._lock:
                self._queued_bytes = max(0, self._queued_bytes - piece.size)

    # --- helpers of the thread that stages -----------------------------------------------------------------------------

    def _begin(self, attempt: str) -> _Attempt:
        self._forget_abandoned()
        if len(self._open) + len(self._sealed) >= self._attempts_most:
            if not self._open:
                raise StagingError(
                    f"{self._attempts_most} attempts wait for their commit; write the rows in fewer partitions."
                )
            self.drop([next(iter(self._open))])  # its task fails, and is run again
        path = self.folder / f"{self._files_made:08}{_SUFFIX}" if self._kept is None else self._kept.path_of(attempt)
        staged = _Attempt(path, self._clock())
        self._files_made += 1
        self._open[attempt] = staged
        return staged

    def _remember(self, attempts: Sequence[str]) -> None:
        """These are gone, so that a late copy of a push does not begin them anew."""
        for attempt in attempts:
            self._gone[attempt] = None
        while len(self._gone) > _ATTEMPTS_REMEMBERED:
            self._gone.popitem(last=False)

    def _forget_abandoned(self) -> None:
        now = self._clock()
        for attempts, for_s in ((self._open, self._open_for_s), (self._sealed, self._sealed_for_s)):
            while attempts:
                oldest = next(iter(attempts))
                if now - attempts[oldest].touched_s < for_s:
                    break
                self.drop([oldest])

    def _checked(self, frame: Frame) -> pa.RecordBatch:
        """The batch in a frame, which must hold one and nothing else: or the rest of the file could not be read."""
        try:
            reader = pa.BufferReader(frame)
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(reader), self.schema)
            batch.validate()
            if reader.tell() != reader.size():
                raise StagingError("A frame holds more than one message; send each record batch in a frame of its own.")
        except (pa.ArrowException, EOFError, OSError) as error:
            reason = str(error).split("\n")[0].rstrip(".")
            raise StagingError(
                f"A frame is no record batch of this source ({reason}); make it with RecordBatch.serialize()."
            ) from None
        return batch

    def _write(self, staged: _Attempt, frames: Sequence[Frame]) -> None:
        begins = not staged.size
        parts = [self.schema.serialize().to_pybytes(), *frames] if begins else list(frames)
        if shutil.disk_usage(self.folder).free < self._reserve_bytes + sum(memoryview(part).nbytes for part in parts):
            raise OSError("there is not enough room left")
        with staged.path.open("wb" if begins else "ab") as file:
            for part in parts:
                staged.size += file.write(part)

    def _note(self, staged: _Attempt, batch: pa.RecordBatch) -> None:
        staged.rows += batch.num_rows
        if self._time is not None and batch.num_rows:
            times = self._time.read(batch)
            newest, oldest = newest_of(times), int(times.min())
            staged.newest_ms = newest if staged.newest_ms is None else max(staged.newest_ms, newest)
            staged.oldest_ms = oldest if staged.oldest_ms is None else min(staged.oldest_ms, oldest)

    def _disk_error(self, error: OSError | msgspec.MsgspecError) -> StagingError:
        if isinstance(error, NotOursError):
            return StagingMovedError(f"This worker does not take in rows for {self.folder}: {error}; run the query again.")
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return StagingError(
            f"A worker cannot stage rows in {self.folder}: {reason}; free space there and run the query again."
        )

    @staticmethod
    def _unknown(attempt: str) -> StagingError:
        return StagingError(
            f"The attempt {attempt} is not staged here, or not complete, or it was dropped after too long a time;"
            " start the query again, which brings its rows once more."
        )
