"""Rows for sinks of the submitting process: a thread takes them from the results log while the job runs."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from dirigo.flow.sinks.sink import Sink
from dirigo.runtime.errors import ControlError

if TYPE_CHECKING:
    from dirigo.runtime.client.client import Client

_BYTES_AT_ONCE = 4 << 20
_WAIT_S = 5.0


class ResultsReader:
    """One sink's rows, on their way here."""

    def __init__(self, client: Client, job: str, name: str, sink: Sink, schema: pa.Schema) -> None:
        self._client = client
        self._job = job
        self._name = name
        self._sink = sink
        self._schema = schema
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"results of {job}", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until all rows are here."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        offset = 0
        try:
            writer = self._sink.open(self._schema, 0)
            while True:
                frames = self._client.log_read(self._job, self._name, offset, _BYTES_AT_ONCE, _WAIT_S)
                for frame in frames:
                    writer.write(pa.ipc.read_record_batch(pa.py_buffer(frame), self._schema))
                if frames:
                    offset += len(frames)
                    writer.flush()
                    continue
                info = self._client.log_info(self._job, self._name)
                if offset >= info.next and (info.ended or info.failed is not None):
                    break
            writer.close()
        except ControlError as error:  # the cluster has gone; the job's handle says more
            self._error = error
        except Exception as error:  # a callback of the user's
            self._error = error
            with suppress(ControlError):
                self._client.fail(self._job, f"sink '{self._name}' failed: {type(error).__name__}: {error}")
        finally:
            self._client.close_thread()
