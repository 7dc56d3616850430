"""Rows for sinks of the submitting process: a thread takes them from the results log while the job runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from dirigo.flow.errors import OperatorFailure, said
from dirigo.flow.sinks.sink import Sink
from dirigo.runtime.errors import ControlError, JobFailed

if TYPE_CHECKING:
    from dirigo.runtime.client.client import Client

_BYTES_AT_ONCE = 4 << 20
_WAIT_S = 5.0


class ResultsReader:
    """One sink's rows, on their way here."""

    def __init__(self, client: Client, job: str, job_name: str, name: str, sink: Sink, schema: pa.Schema) -> None:
        self._client = client
        self._job = job
        self._job_name = job_name
        self._name = name
        self._sink = sink
        self._schema = schema
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"results of {job}", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until all rows are here. Raises ``JobFailed`` if the sink could not take them."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._take_rows()
        except JobFailed as failure:
            self._error = failure
            with suppress(ControlError):
                self._client.fail(self._job, self._sentence(failure.__cause__ or failure))
        except BaseException as error:  # mostly the cluster has gone; whatever it is, whoever waits must know
            self._error = error
        finally:
            self._client.close_thread()

    def _take_rows(self) -> None:
        offset = 0
        with self._blamed_on_sink():
            writer = self._sink.open(self._schema, 0)
        while True:
            frames = self._client.log_read(self._job, self._name, offset, _BYTES_AT_ONCE, _WAIT_S)
            if frames:
                with self._blamed_on_sink():
                    for frame in frames:
                        writer.write(pa.ipc.read_record_batch(pa.py_buffer(frame), self._schema))
                    writer.flush()
                offset += len(frames)
                continue
            info = self._client.log_info(self._job, self._name)
            if offset >= info.next and (info.ended or info.failed is not None):
                break
        with self._blamed_on_sink():
            writer.close()

    @contextmanager
    def _blamed_on_sink(self) -> Iterator[None]:
        """A callback is user code and may raise anything, also what would end a thread without a word."""
        try:
            yield
        except BaseException as error:
            raise JobFailed(f"job '{self._job_name}' failed: {self._sentence(error)}") from error

    def _sentence(self, error: BaseException) -> str:
        if isinstance(error, OperatorFailure):  # which names the sink
            return str(error)
        return f"sink '{self._name}' failed: {said(error).removesuffix(': ')}"
