"""The thread that takes in rows pushed from outside: writing them to disk must not hold up the fetcher."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
import zmq

from dirigo.runtime.ingest.pusher import STAGE, STAGED, StagingAck, StagingHeader
from dirigo.runtime.threads import OnEscape, ServiceThread
from dirigo.runtime.transport.authenticator import Refusals
from dirigo.runtime.transport.fragments import joined
from dirigo.runtime.worker.installed_job import InstalledJob

_log = logging.getLogger(__name__)
_POLL_MS = 200
_encoder = msgspec.msgpack.Encoder()
_headers = msgspec.msgpack.Decoder(StagingHeader)


class IngestThread:
    """Owns its socket, which nobody else uses."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        find: Callable[[str], InstalledJob | None],
        refusals: Refusals,
        on_escape: OnEscape,
    ) -> None:
        self._socket = socket
        self._find = find
        self._refusals = refusals
        self._is_stopping = False
        self._thread = ServiceThread(self._run, name="ingest", on_escape=on_escape)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            if self._socket.poll(_POLL_MS):
                frames = joined(self._socket.recv_multipart())
                try:
                    header = self._header(frames)
                except (msgspec.DecodeError, ValueError) as error:
                    self._refusals.note("a malformed push", str(error))
                    continue
                self._answer(frames[0], self._stage(header, frames[3:]))
        self._socket.close(0)

    def _header(self, frames: list[bytes]) -> StagingHeader:
        if len(frames) < 3 or frames[1] != STAGE:
            raise ValueError("it does not begin as a push does")
        return _headers.decode(frames[2])

    def _stage(self, header: StagingHeader, frames: list[bytes]) -> StagingAck:
        job = self._find(header.job)
        if job is None:
            gone = "the job has ended, so its source takes no more rows."
            return StagingAck(header.attempt, header.number, gone, has_moved=True)
        try:
            return job.stage(header, frames)
        except Exception as error:  # the task has to know, whatever it is
            _log.exception("staging failed")
            return StagingAck(header.attempt, header.number, f"the worker cannot stage rows: {error}")

    def _answer(self, identity: bytes, ack: StagingAck) -> None:
        try:
            self._socket.send_multipart([identity, STAGED, _encoder.encode(ack)], zmq.NOBLOCK)
        except zmq.ZMQError:
            self._refusals.note("an acknowledgment to a task that is gone")
