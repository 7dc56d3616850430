"""Bringing the rows of a task to the worker that takes them in; if the rows are kept, also to whoever takes its place.

A job that comes back reads its splits elsewhere. Then all rows of the task are brought there, as another attempt: those that
had been brought before are remembered for that, in memory or, if they are many, in a file.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from dirigo.runtime.control import AttemptRef, SourcePlaces, SplitPlace
from dirigo.runtime.errors import ControlError
from dirigo.runtime.ingest.pusher import Arrival, ClientKeys, MovedError, Pusher, PushError

COMES_BACK_S: Final = 180.0  # a job that no worker is ready for fails before that
_ASK_S, _ASK_S_MOST = 0.05, 1.0
_MEMORY_BYTES: Final = 16 << 20


class PlacesClient(Protocol):
    """Who knows where rows go."""

    def source_places(self, job: str, source: str | None) -> SourcePlaces: ...

    def close(self) -> None: ...


Connect = Callable[[], PlacesClient]


class Brought(NamedTuple):
    """What a worker has of an attempt, complete."""

    ref: AttemptRef
    newest_ms: int | None
    oldest_ms: int | None


def places_of(connect: Connect, job: str, source: str | None, wait_s: float = COMES_BACK_S) -> SourcePlaces:
    """Where the rows of a source go; waits for a job that is about to come back."""
    until = time.monotonic() + wait_s
    pause_s = _ASK_S
    with contextlib.closing(connect()) as client:
        while not (places := client.source_places(job, source)).splits:
            if time.monotonic() >= until:
                raise ControlError(
                    f"job '{job}' has not come back within {wait_s:.0f} s; see its status, and start the query again."
                )
            time.sleep(pause_s)
            pause_s = min(_ASK_S_MOST, pause_s * 1.5)
    return places


class Bringing:
    """To the splits of one source. It keeps in mind where they are now."""

    def __init__(self, places: SourcePlaces, keys: ClientKeys, connect: Connect) -> None:
        self._places = places
        self._keys = keys
        self._connect = connect

    def bring(
        self,
        number: int,
        batches: Iterable[pa.RecordBatch] = (),
        reached_ms: int | None = None,
        arrival: Arrival | None = None,
    ) -> Brought:
        """Stage rows at the split of this number, or as many further as there are fewer."""
        if not self._places.is_kept:
            return self._push(number, batches, reached_ms, arrival)
        with _Remembered(batches) as remembered:
            until, came = 0.0, -1
            while True:
                try:
                    return self._push(number, remembered, reached_ms, arrival)
                except PushError as error:
                    if remembered.came > came:  # it had gone on since the loss before
                        until, came = time.monotonic() + COMES_BACK_S, remembered.came
                    is_here = not isinstance(error, MovedError) and not self._has_moved(number)
                    if is_here or not remembered.is_whole or time.monotonic() >= until:
                        raise
                time.sleep(_ASK_S_MOST / 4)  # what is told of a loss comes on several ways
                self._places = places_of(self._connect, self._places.job, self._places.source)

    def _push(
        self, number: int, batches: Iterable[pa.RecordBatch], reached_ms: int | None, arrival: Arrival | None
    ) -> Brought:
        has_moved = (lambda: self._has_moved(number)) if self._places.is_kept else None
        with Pusher(self._places, self._place(number), self._keys, has_moved=has_moved) as pusher:
            for batch in batches:
                pusher.push(batch)
            ref = pusher.finish(reached_ms, arrival)
            return Brought(ref, pusher.newest_ms, pusher.oldest_ms)

    def _place(self, number: int) -> SplitPlace:
        return self._places.splits[number % len(self._places.splits)]

    def _has_moved(self, number: int) -> bool:
        with contextlib.closing(self._connect()) as client:
            now = client.source_places(self._places.job, self._places.source)
        return now.run != self._places.run or not now.splits or now.splits[number] != self._place(number)


class _Remembered:
    """Batches that can be gone through again, those included that have not been asked for yet."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.is_whole = True  # unless there was no room
        self.came = 0  # batches
        self._rest = iter(batches)
        self._first: list[pa.RecordBatch] = []
        self._bytes = 0
        self._in_file = 0  # how many follow those
        self._path: Path | None = None
        self._file: pa.NativeFile | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> _Remembered:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        for each in (self._writer, self._file):
            if each is not None:
                with contextlib.suppress(OSError, pa.ArrowException):
                    each.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._first
        yield from self._written()
        for batch in self._rest:
            self.came += 1
            self._remember(batch)
            yield batch

    def _remember(self, batch: pa.RecordBatch) -> None:
        if not self._in_file and self._bytes + batch.nbytes <= _MEMORY_BYTES:
            self._first.append(batch)
            self._bytes += batch.nbytes
            return
        if not self.is_whole:
            return
        try:
            if self._writer is None:
                with tempfile.NamedTemporaryFile(prefix="dirigo-", suffix=".arrow", delete=False) as made:
                    self._path = Path(made.name)
                self._file = pa.OSFile(made.name, "wb")
                self._writer = pa.ipc.new_stream(self._file, batch.schema)
            self._writer.write_batch(batch)
            self._in_file += 1
        except OSError:  # rows still go where they should; should the job move, Spark has to run the query again
            self.is_whole = False

    def _written(self) -> Iterator[pa.RecordBatch]:
        if not self._in_file:
            return
        with pa.memory_map(str(self._path)) as file:
            reader = pa.ipc.open_stream(file)
            for _ in range(self._in_file):
                yield reader.read_next_batch()
