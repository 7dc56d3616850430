"""Results of a job as the results log has them, for Python: as rows, as Arrow batches, or as one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dirigo.flow.rows.unreadable import NO_FORM
from dirigo.runtime.control import LogInfo
from dirigo.runtime.errors import ControlError, JobFailed

if TYPE_CHECKING:
    from dirigo.runtime.client.client import Client

_BYTES_AT_ONCE = 4 << 20
_WAIT_S = 5.0


class JobResults:
    """The rows of one sink of a job. Each loop over them begins with the oldest that the cluster has kept.

    Iterating gives rows as dicts.
    """

    def __init__(self, client: Client, job: str, job_name: str, sink: str | None, *, follow: bool) -> None:
        self._client = client
        self._job = job
        self._job_name = job_name
        self._follow = follow
        info = client.log_info(job, sink)
        self.sink = info.sink
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(info.schema))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches():
            yield from self._rows_of(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches, as they come."""
        info = self._info()
        offset, end = info.first, info.next
        while True:
            if offset < end or self._follow:
                frames = self._client.log_read(
                    self._job, self.sink, offset, _BYTES_AT_ONCE, _WAIT_S if self._follow else 0.0
                )
                for frame in frames if self._follow else frames[: end - offset]:
                    yield pa.ipc.read_record_batch(pa.py_buffer(frame), self.schema)
                offset += len(frames)
                if frames:
                    continue
            if not self._follow:
                return
            info = self._info()
            if offset >= info.next and info.failed is not None:
                raise JobFailed(f"the results of job '{self._job_name}' are not complete: {info.failed}")
            if offset >= info.next and info.ended:
                return

    @property
    def table(self) -> pa.Table:
        """All rows as one Arrow table."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def _info(self) -> LogInfo:
        return self._client.log_info(self._job, self.sink)

    def _rows_of(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        try:
            rows: list[dict[str, Any]] = batch.to_pylist()
        except NO_FORM as error:
            raise ControlError(
                f"a value of sink '{self.sink}' has no form in Python ({error}); take batches() or the table."
            ) from error
        return rows

    def __repr__(self) -> str:
        return f"JobResults({self._job!r}, {self.sink!r}: {', '.join(self.schema.names)})"
