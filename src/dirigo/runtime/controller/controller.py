"""The controller on the driver: who is in the pool, which jobs run on it, and what has become of them.

One thread owns the socket and all state. Workers and clients talk to it; it runs none of the user's code, and no message of
a job ever passes through it. What it knows of a worker is in ``membership``, of a job in ``job_record``.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
import zmq

from dirigo.kernel import job_of
from dirigo.runtime import control
from dirigo.runtime.controller.checks import actor_of, check_hello, check_report
from dirigo.runtime.controller.job_record import JobRecord, described
from dirigo.runtime.controller.membership import Slot
from dirigo.runtime.controller.placement import Placement
from dirigo.runtime.controller.pool import Pool
from dirigo.runtime.controller.probes import Probes
from dirigo.runtime.controller.recovery import Recovery
from dirigo.runtime.controller.requests import Requests
from dirigo.runtime.controller.side_work import SideWork, Work
from dirigo.runtime.controller.snapshots import Snapshots
from dirigo.runtime.controller.submissions import Submissions
from dirigo.runtime.controller.worker_lines import Lines
from dirigo.runtime.errors import ControlError
from dirigo.runtime.failures import cut_failure
from dirigo.runtime.generations import job_of_run
from dirigo.runtime.results.log.errors import LogError
from dirigo.runtime.results.server import RETAIN_BYTES, RETAIN_S, LogServer
from dirigo.runtime.threads import ServiceThread
from dirigo.runtime.transport.authenticator import Authenticator, Refusals, role_of
from dirigo.runtime.transport.fragments import joined
from dirigo.runtime.transport.keys import CLIENT, READER, WORKER, WRITER, KeyRing
from dirigo.runtime.transport.signal_socket import SignalSocket
from dirigo.scheduling import DEFAULT, StrategyLike

TICK_S = 0.1
PULSE_S = 1.0
SNAPSHOTS_EVERY_S = 10.0
LAST_FIGURES_S = 2.0  # a worker has this long to send its last figures of a job
_AT_ONCE = 64
_DOOR = "controller"  # and the results log beside it

_log = logging.getLogger(__name__)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(control.ToController)
_PULSE = _encoder.encode(control.Pulse())


class Controller:
    """One cluster's. ``start`` it, and talk to it with a ``Client``."""

    def __init__(
        self,
        name: str,
        pool: Pool,
        workers: int,
        *,
        logs: Path,
        host: str = "127.0.0.1",
        strategy: StrategyLike = DEFAULT,
        retain_bytes: int = RETAIN_BYTES,
        retain_s: float = RETAIN_S,
        snapshots: str | None = None,
        snapshots_every_s: float = SNAPSHOTS_EVERY_S,
    ) -> None:
        self.name = name
        self.run_id = secrets.token_hex(8)
        self._ring = KeyRing()
        self.pool = pool
        self.slots: dict[int, Slot] = {}
        self.jobs: dict[str, JobRecord] = {}
        self.wanted = workers
        self.refusals = Refusals("the controller")
        self.began_s = time.monotonic()
        self.is_stopping = False
        self.farewell_s = 1.0  # for all workers to hear that the cluster ends
        self.failure: str | None = None  # why the service cannot go on
        self._has_told_failure = False
        self._incarnations = 0
        self._probes = Probes()
        self._pulse_s = 0.0
        self._last_figures_until: dict[str, float] = {}
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()  # what other threads have to be done on this one
        self._signal = SignalSocket()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=2)
        self._authenticator = Authenticator(self._context, {_DOOR: self._ring.admitted()}, self.refusals)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 200  # the last orders should arrive
        self._socket.router_mandatory = True
        self._socket.router_handover = True
        self._ring.server.secure_server(self._socket, _DOOR)
        self._authenticator.watch(self._socket)
        self._lines = Lines(self._socket)
        self._endpoint = f"tcp://{host}:{self._socket.bind_to_random_port(f'tcp://{host}')}"
        try:
            self.logs = LogServer(
                self._context,
                self._ring.server,
                _DOOR,
                host,
                logs,
                self.refusals,
                self._note_logs_ended,
                self.mark_failed,
                on_cut=self._note_logs_cut,
                retain_bytes=retain_bytes,
                retain_s=retain_s,
            )
        except LogError:  # the folder is not to be had
            self._close()
            raise
        self._authenticator.watch(self.logs.socket)
        keys = self._ring.keys_of
        lesser = (keys(WRITER), keys(READER))
        self.access = control.Access(self.run_id, self._endpoint, self.logs.endpoint, keys(CLIENT), lesser)
        self._placement = Placement(self)
        self.requests = Requests(self)
        self.snapshots = Snapshots(self)
        self.recovery = Recovery(self, snapshots)
        every_s = snapshots_every_s if snapshots is not None else None
        self.submissions = Submissions(self, strategy, every_s)
        self._side_work = SideWork("side work", self._call, self.mark_failed)
        self._long_work = SideWork("long side work", self._call, self.mark_failed)
        self._thread = ServiceThread(self._run, name="controller", on_escape=self.mark_failed)

    def start(self) -> None:
        self.recovery.resume_all()
        self.logs.start()
        self._side_work.start()
        self._long_work.start()
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Tell all workers to go, and end."""
        self.is_stopping = True
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._side_work.stop()
        self._long_work.stop()
        self.logs.stop()
        self._close()

    def _close(self) -> None:
        self._probes.close()
        self._authenticator.close()
        self._socket.close(200)
        self._context.term()
        self._signal.close()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def mark_failed(self, sentence: str) -> None:
        """Called by any thread: the service cannot go on. Its jobs fail, and it takes no others until it is stopped."""
        if self.failure is None:
            _log.critical("the cluster cannot go on: %s", sentence)
            self.failure = sentence
            self._signal.ring()

    def bootstrap(self, worker: int) -> control.Bootstrap:
        ring = self._ring
        inbound, ingest = ring.admitted((WORKER,)), ring.admitted((CLIENT, WRITER))
        return control.Bootstrap(self.run_id, worker, self._endpoint, ring.keys_of(WORKER), inbound, ingest)

    # --- the loop ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        poller = zmq.Poller()
        for socket in (self._socket, self._authenticator.socket, *self._authenticator.monitors, self._signal.descriptor):
            poller.register(socket, zmq.POLLIN)
        self._fill_slots()
        ticked_s = 0.0
        while not self.is_stopping:
            ready = self._listen(poller)
            now = time.monotonic()
            try:
                if self._signal.descriptor in ready:
                    self._signal.silence()
                    self._take_inbox()
                if now - ticked_s >= TICK_S:
                    ticked_s = now
                    self._authenticator.tend()
                    self._tick(now)
            except Exception:  # whatever it is, the service goes on
                _log.exception("the controller could not look after its workers and jobs")
        for job in list(self.jobs.values()):
            if job.is_live and job.outcome is None:
                self.end(job, "cancelled", None)
            self._settle(job)
        self.requests.look(time.monotonic(), is_last=True)
        for slot in self.slots.values():
            self._order(slot, control.Stop())
        until = time.monotonic() + self.farewell_s
        while not self._lines.is_settled and time.monotonic() < until:
            self._listen(poller)
            self._lines.tend()

    def _listen(self, poller: zmq.Poller) -> dict[Any, int]:
        """Take what has come, or comes until the next tick; returns what else is ready."""
        ready = dict(poller.poll(int(TICK_S * 1000)))
        if self._authenticator.socket in ready:
            self._authenticator.answer()
        for monitor in self._authenticator.monitors:
            if monitor in ready:
                self._authenticator.look(monitor)
        if self._socket in ready:
            for _ in range(_AT_ONCE):
                try:
                    self._take(self._socket.recv_multipart(zmq.NOBLOCK, copy=False))
                except zmq.Again:
                    break
        return ready

    def _take(self, frames: list[zmq.Frame]) -> None:
        """Requests and greetings come alone; what else a worker says has come through its channel."""
        role = role_of(frames[-1])
        identity, *parts = joined([frame.bytes for frame in frames])
        try:
            *heads, body = parts
            if heads:
                if role != WORKER:
                    self.refusals.note("a report of somebody who is no worker")
                    return
                (head,) = heads
                taken = self._lines.take(identity, head, body)
                if taken.problem:
                    self.refusals.note(taken.problem)
                if not taken.is_new:
                    return
            record = _decoder.decode(body)
        except (ValueError, msgspec.DecodeError) as error:
            self.refusals.note("a malformed message", str(error))
            self.requests.refuse(identity, parts, error)
            return
        try:
            if isinstance(record, control.Asked):
                self.requests.take(identity, record, role)
            elif role != WORKER:
                self.refusals.note("a report of somebody who is no worker")
            elif heads or isinstance(record, control.Hello):
                self._hear(identity, record)
            else:
                self.refusals.note("a report of a worker that is not a member")
        except Exception:  # one request must not stop the service
            _log.exception("the controller could not handle %s", type(record).__name__)

    def _call(self, function: Callable[[], None]) -> None:
        """Called by any thread: have something done on the controller's."""
        self._inbox.put(function)
        self._signal.ring()

    def beside(self, work: Work, *, is_long: bool = False) -> None:
        """Have something done that waits for a disk, and what it returns on the controller's thread."""
        (self._long_work if is_long else self._side_work).put(work)

    def _take_inbox(self) -> None:
        with suppress(Empty):
            while True:
                self._inbox.get_nowait()()

    def _note_logs_ended(self, name: str, error: str | None) -> None:
        """Called by a thread of the logs."""

        def note() -> None:
            job = self.jobs.get(name)
            if job is not None and error is not None:
                self.fail(name, error, None)
            elif job is not None and (job.snapshots is None or self._has_ended_now(job)):
                job.logs_ended = True
                self.snapshots.logs_ended(job)
                self.look_for_the_end(job)

        self._call(note)

    def _has_ended_now(self, job: JobRecord) -> bool:
        """Whether what was told of the end of the results is of the generation that runs now, and not of one before."""
        return not job.is_restoring and self.logs.has_ended(job.id)

    def _note_logs_cut(self, name: str, number: int, cuts: Mapping[str, int]) -> None:
        """Called by a thread of the logs."""

        def note() -> None:
            if (job := self.jobs.get(name)) is not None:
                self.snapshots.logs_cut(job, number, dict(cuts))

        self._call(note)

    def _tick(self, now: float) -> None:
        if self.failure is not None and not self._has_told_failure:
            self._has_told_failure = True
            for job in list(self.jobs.values()):
                self.fail(job.id, self.failure, None)
        self._probes.note(self._authenticator.broken, now)
        # Others wait for the next process in its place, which knows what the one before was doing.
        comes_back = [job for job in self.jobs.values() if job.is_live and job.snapshots is not None]
        slots = [slot for slot in self.slots.values() if any(job.was_served_by(slot.worker) for job in comes_back)]
        for slot in self._probes.gone(slots, now):
            self._lose(slot, "ended unexpectedly")
        for slot in list(self.slots.values()):
            is_stuck = slot.is_there and self._lines.is_stuck(slot.identity)
            if slot.is_silent(now) or is_stuck:
                how = "gave no sign of life for too long" if slot.is_silent(now) else "could not be reached"
                self._lose(slot, how)
                self.pool.interrupt(slot.worker)
        if now - self._pulse_s >= PULSE_S:
            self._pulse_s = now
            for slot in self.slots.values():
                self._lines.pulse(slot.identity, _PULSE)
        self._lines.tend()
        for name, until in list(self._last_figures_until.items()):
            if now >= until:
                self._settle(self.jobs[name])
        self._fill_slots()
        self._placement.place_waiting(now)
        self.snapshots.look(now)
        self.requests.look(now)

    # --- workers -------------------------------------------------------------------------------------------------------

    def _hear(self, identity: bytes, record: control.FromWorker) -> None:
        if isinstance(record, control.Hello):
            self._greet(identity, record)
            return
        slot = next((each for each in self.slots.values() if each.identity == identity), None)
        if slot is None or not slot.is_there:
            self.refusals.note("a report of a worker that is not a member")
            return
        slot.heard_s = time.monotonic()
        try:
            check_report(record)
        except ControlError as error:
            self.refusals.note("a wrong report of a worker", f"{type(record).__name__}: {error}")
            return
        match record:
            case control.Beat():
                slot.beat(record.figures, slot.heard_s)
                for run, figures in record.jobs.items():
                    job = self.of_run(run)
                    if job is not None and job.is_live:
                        job.take_figures(slot.worker, figures)
            case control.Installed():
                self._placement.note_installed(slot, record)
            case control.ActorEnded():
                job = self.of_run(record.job)
                if job is not None and record.is_leaf:
                    job.ended_leaves.add(record.address)
                    self.look_for_the_end(job)
                elif job is not None:
                    self.snapshots.actor_ended(job, record.address.partition("/")[2])
            case control.ActorFailed():
                job = self.of_run(record.job)
                if job is not None and record.lost:
                    self.recovery.recover(job, record.error)
                elif job is not None:
                    self.fail(job.id, record.error, record.traceback)
            case control.Captured():
                if (job := self.of_run(record.job)) is not None:
                    self.snapshots.captured(job, record)
            case control.Committed():
                if (job := self.of_run(record.job)) is not None:
                    self.snapshots.committed(job, slot.worker, record.number)
            case control.Removed():
                self._note_removed(slot, record)
            case control.Released():
                self.requests.commits.released(slot.worker, record)
            case control.PeerLost():
                self._note_unreachable(slot, record)
            case control.Stuck():
                what = described(record.leftover, self.owner_of(record.leftover), goes_on=True)
                self._lose(slot, f"was ended because {what} did not stop within {control.STOP_AFTER_S:g} s")

    def _greet(self, identity: bytes, hello: control.Hello) -> None:
        slot = self.slots.get(hello.worker)
        if hello.run != self.run_id or slot is None:
            self.refusals.note("a worker of another run")
            self._lines.turn_away(identity, _encoder.encode(control.Stop()))
            return
        if slot.identity == identity:  # it has not heard yet that it is welcome
            return
        try:
            check_hello(hello)
        except ControlError as error:
            self.refusals.note("a wrong report of a worker", f"Hello: {error}")
            self._lines.turn_away(identity, _encoder.encode(control.Stop()))
            return
        if slot.is_there:  # the process that had this place is gone: its host started another one
            how = "ended unexpectedly and was started again"
            if hello.frozen_s:
                how = (
                    f"could not run its threads for more than {hello.frozen_s:g} s, because code kept the interpreter lock "
                    "or the process was suspended, and was started again"
                )
            self._lose(slot, how, actor_of(hello.was_doing))
        else:
            self.recovery.note_culprit(actor_of(hello.was_doing))
        self._incarnations += 1
        slot.join(hello, identity, self._incarnations, time.monotonic())
        self._lines.open(identity, slot.incarnation)
        _log.info("worker %d joined from %s, process %d", slot.worker, hello.host, hello.pid)
        self._order(slot, control.Welcome(slot.incarnation, self.logs.endpoint, self._members()))
        self._tell_members()
        for job in self.jobs.values():  # it may be asked to help with any of them
            if job.state in ("starting", "running", "draining") and job.outcome is None:
                self._order(slot, job.install())

    def _lose(self, slot: Slot, how: str, culprit: str | None = None) -> None:
        """A worker is gone: so is all that it held, and the jobs that it served cannot go on. Those that have not begun can.

        Which jobs have sent something there is known by the workers that have sent it: they fail those jobs when they hear
        of the loss. All other jobs go on without it.
        """
        pid = slot.hello.pid if slot.hello else 0
        _log.warning("worker %d (process %d) %s", slot.worker, pid, how)
        slot.state = "leaving" if slot.state == "leaving" else "lost"
        slot.problem = how
        self._lines.close(slot.identity)
        slot.identity = b""
        self._tell_members()
        owner = None if culprit is None else self.owner_of(culprit)
        for job in list(self.jobs.values()):
            job.forget_worker(slot.worker)
            if not job.is_live or job.outcome is not None:
                continue
            is_culprit = owner is job
            if job.state == "starting":
                self._placement.note_lost(job, slot.worker, how)
            elif is_culprit or job.was_served_by(slot.worker):
                loss = job.loss_by(slot.worker, how, culprit, owner)
                self.recovery.recover(job, loss, culprit if is_culprit else None)
            elif job.state != "waiting":
                self._placement.tell_helpers(job)

    def _members(self) -> tuple[control.Member, ...]:
        return tuple(slot.member() for slot in self.slots.values() if slot.is_there)

    def _tell_members(self, left: tuple[int, ...] = ()) -> None:
        members = control.Members(self._members(), left)
        self.logs.set_members((member.worker, member.incarnation) for member in members.members)
        for slot in self.slots.values():
            if slot.is_there:
                self._order(slot, members)

    def _fill_slots(self) -> None:
        """Have as many workers as are wanted: start new ones, and let go of the last ones once no job needs them."""
        staying = [slot for slot in self.slots.values() if slot.state != "leaving"]
        number = 0
        while len(staying) < self.wanted:
            while number in self.slots:
                number += 1
            slot = self.slots[number] = Slot(number)
            staying.append(slot)
            self.pool.start(self.bootstrap(number))
        for slot in sorted(staying, key=lambda each: each.worker)[self.wanted :]:
            slot.state = "leaving"
            for job in self.jobs.values():
                if job.state in ("running", "draining") and job.outcome is None:
                    self._placement.tell_helpers(job)
        for slot in [each for each in self.slots.values() if each.state == "leaving"]:
            if not any(job.is_live and job.needs(slot.worker) for job in self.jobs.values()):
                self.pool.stop(slot.worker)
                self._order(slot, control.Stop())
                self._lines.part(slot.identity)
                del self.slots[slot.worker]
                for job in self.jobs.values():
                    job.forget_worker(slot.worker)
                self._tell_members((slot.worker,))

    def _note_unreachable(self, slot: Slot, record: control.PeerLost) -> None:
        other = self.slots.get(record.worker)
        if other is None or other.incarnation != record.incarnation:
            return
        for job in list(self.jobs.values()):
            is_across = job.was_served_by(slot.worker) and job.was_served_by(other.worker)
            if job.is_live and (is_across or job.run in record.jobs):
                self.recovery.recover(
                    job,
                    f"worker {slot.worker} cannot reach worker {other.worker}; see that the hosts of the cluster can "
                    "connect to each other on any port, and submit the job again.",
                )

    def resize(self, workers: int) -> None:
        """Have this many workers from now on."""
        most = self.pool.workers_most
        if most is not None and workers > most:
            raise ControlError(
                f"there is room for {most} workers at most, and a query beside them: start the cluster with {workers}, "
                "or on a Spark with more cores."
            )
        self.wanted = workers

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def of_run(self, run: str) -> JobRecord | None:
        """The job of which this is the present generation."""
        job = self.jobs.get(job_of_run(run))
        return job if job is not None and job.run == run else None

    def owner_of(self, leftover: str) -> JobRecord | None:
        """The job of an actor, or of a generation, be it of the past."""
        return self.jobs.get(job_of_run(job_of(leftover)))

    def place_waiting(self) -> None:
        self._placement.place_waiting(time.monotonic())

    def take_back(self, job: JobRecord, workers: Iterable[int]) -> None:
        self.recovery.take_back(job, workers)

    def drain(self, job: JobRecord, source: str | None) -> None:
        if job.state in ("waiting", "starting"):
            job.to_drain.append(source)  # once it has started
            self.recovery.note_drain(job)
            return
        if source not in job.to_drain:
            job.to_drain.append(source)  # a later generation does so too
            self.recovery.note_drain(job)
        if source is None:
            job.state = "draining"
        self.requests.commits.complete(job, source)
        self.order_all(job.installed, control.DrainJob(job.run, source))

    def fail(self, name: str, error: str, trace: str | None) -> None:
        job = self.jobs.get(name)
        if job is not None and job.is_live and job.outcome is None:
            job.error, job.traceback = cut_failure(error, trace)
            _log.warning("job %s failed: %s", name, job.error)
            self.end(job, "failed", job.error)

    def look_for_the_end(self, job: JobRecord) -> None:
        if job.is_live and job.outcome is None and job.is_complete and self.snapshots.finish(job):
            self.end(job, "finished", None)

    def end(self, job: JobRecord, outcome: str, error: str | None) -> None:
        """A job is over: its workers forget it, and send their last figures."""
        job.outcome = outcome
        goes_on = self.failure is not None and job.snapshots is not None  # in the next service
        told = {"finished": None, "cancelled": "it was cancelled"}.get(outcome, error)
        self.logs.close_job(job.id, told, goes_on=goes_on, is_cut=job.stopped_into is not None)
        self.snapshots.job_ended(job)
        job.removing = {worker for worker in job.installed | job.installing if self.slots[worker].is_there}
        self._last_figures_until[job.id] = time.monotonic() + LAST_FIGURES_S
        self.order_all(job.removing, control.Remove(job.run, goes_on=goes_on))
        if not goes_on:
            self.recovery.forget(job)
        if not job.removing or outcome == "failed":
            self._settle(job)

    def _note_removed(self, slot: Slot, record: control.Removed) -> None:
        job = self.of_run(record.job)
        if job is None:
            return
        if record.figures != control.JobFigures():  # or it did not know the job
            job.figures[slot.worker] = record.figures
        job.removing.discard(slot.worker)
        if job.is_live and job.outcome is not None and not job.removing:
            self._settle(job)

    def _settle(self, job: JobRecord) -> None:
        """The outcome of a job is known to everybody from now on."""
        self._last_figures_until.pop(job.id, None)
        if job.is_live and job.outcome is not None:
            job.state = job.outcome
            job.ended_s = time.time()
            job.shipment = b""
            self.requests.look(time.monotonic())

    # --- sending -------------------------------------------------------------------------------------------------------

    def order_all(self, workers: Iterable[int], order: control.ToWorker) -> None:
        body = _encoder.encode(order)  # once: the code of a job may be large
        for slot in [self.slots[worker] for worker in workers]:
            self._lines.order(slot.identity, body)

    def order(self, worker: int, order: control.ToWorker) -> None:
        self._order(self.slots[worker], order)

    def _order(self, slot: Slot, order: control.ToWorker) -> None:
        """Tell a worker. If it does not hear of it, and no new process comes in its place, it is taken for lost."""
        self._lines.order(slot.identity, _encoder.encode(order))

    def answer(self, identity: bytes, answer: bytes) -> None:
        """Tell a client. If it does not hear of it, it asks again."""
        with suppress(zmq.ZMQError):
            self._socket.send_multipart([identity, answer], zmq.NOBLOCK)
