"""The fetcher thread: it brings in messages, keeps in touch with the controller, and sends results to the log.

It never runs user code, so a function that takes for ever does not keep its worker from answering. Should one keep the
interpreter itself for too long, a timer of the C library ends the process, and whoever hosts the worker starts it again.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import resource
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path

import zmq

from dirigo.kernel.worker_loads import TELL_EVERY_S
from dirigo.runtime import control
from dirigo.runtime.folders import show_life
from dirigo.runtime.ingest.staging import StagingError
from dirigo.runtime.results.poster import LogPosting
from dirigo.runtime.transport.authenticator import Gate
from dirigo.runtime.transport.inbound import Lanes
from dirigo.runtime.transport.peers import CONTROL, DATA
from dirigo.runtime.worker.clock import WorkerClock
from dirigo.runtime.worker.controller_line import Line
from dirigo.runtime.worker.executor import Executor
from dirigo.runtime.worker.installed_job import InstalledJob
from dirigo.runtime.worker.last_words import LastWords
from dirigo.runtime.worker.site import Site

BEAT_S = 0.25
TEND_S = TELL_EVERY_S
FROZEN_AFTER_S = float(os.environ.get("DIRIGO_FROZEN_AFTER_S", "8"))  # without the interpreter
STOP_AFTER_S = 5.0  # user code of a removed job that does not stop
_STATES_AT_ONCE = 256  # whose size is looked at per beat

_log = logging.getLogger(__name__)


class Fetcher:
    """The loop of the fetcher thread."""

    def __init__(
        self,
        site: Site,
        executor: Executor,
        gate: Gate,
        lanes: tuple[zmq.Socket[bytes], zmq.Socket[bytes]],
        line: Line,
        posting: LogPosting,
        hello: control.Hello,
        folder: Path,
        last_words: LastWords,
        clock: WorkerClock,
        stop_executor: Callable[[BaseException | None], None],
    ) -> None:
        self._site = site
        self._executor = executor
        self._gate = gate
        self._lanes = Lanes(site, lanes)
        self._line = line
        self._posting = posting
        self._hello = hello
        self._folder = folder
        self._last_words = last_words
        self._clock = clock
        self._stop_executor = stop_executor
        self._beat_s = self._tended_s = 0.0
        self._greeted_s = 0.0
        self._condemned: dict[str, float] = {}  # removed jobs whose code still runs -> until when it may
        self._removed: deque[str] = deque(maxlen=1000)  # jobs that must not be installed any more
        self._is_done = False
        self._given_up: str | None = None

    def give_up(self, sentence: str) -> None:
        """Called by any thread: the worker cannot go on, and ends."""
        self._given_up = sentence

    def run(self) -> None:
        """Until the controller says so, or is gone."""
        try:
            self._loop()
            failure: BaseException | None = None
        except BaseException as error:  # the other thread has to know in any case
            failure = error
        finally:
            faulthandler.cancel_dump_traceback_later()
        self._stop_executor(failure)

    def _loop(self) -> None:
        poller = zmq.Poller()
        lanes = self._lanes
        watched = [*lanes.sockets, self._line.socket, self._posting.socket, self._gate.socket, *self._gate.monitors]
        for socket in watched:
            poller.register(socket, zmq.POLLIN)
        poller.register(self._site.bell.descriptor, zmq.POLLIN)
        control_lane, data_lane = lanes.sockets
        while not self._is_done:
            ready = dict(poller.poll(int(TEND_S * 1000)))
            if control_lane in ready:
                lanes.take_in(CONTROL)
            if self._line.socket in ready:
                self._obey()
            if data_lane in ready:
                lanes.take_in(DATA)
            if self._site.bell.descriptor in ready:
                self._site.bell.silence()
            if self._gate.socket in ready:
                self._gate.answer()
            for monitor in self._gate.monitors:
                if monitor in ready:
                    self._gate.look(monitor)
            if self._posting.socket in ready:
                self._posting.receive(self._site)
            self._posting.post(self._site)
            self._tell_controller()
            now = time.monotonic()
            if now - self._tended_s >= TEND_S:
                self._tended_s = now
                self._tend(now)

    # --- now and then -------------------------------------------------------------------------------------------------

    def _tend(self, now: float) -> None:
        if self._given_up is not None:
            raise RuntimeError(self._given_up)
        self._gate.tend()
        self._clock.follow()
        site = self._site
        with site.lock:
            silent = site.peers.tend()
            worker = site.worker
            worker.now = site.clock()
            self._fire_timers()
            site.tell_load()
            site.bell.silence()  # and look: should it ever have been rung half, it is heard again from now on
            lost = [
                control.PeerLost(peer.member.worker, peer.member.incarnation, site.users_of(peer.member.worker))
                for peer in silent
            ]
        for each in lost:
            site.report(each)
        for job, until in list(self._condemned.items()):
            if now >= until and self._executor.busy_with() == job:
                raise RuntimeError(f"the code of the removed job {job} does not stop")
            if now >= until:
                del self._condemned[job]

    def _fire_timers(self) -> None:
        site = self._site
        try:
            due = site.worker.next_timer()
            if due is not None and due <= site.worker.now:
                site.worker.fire_timers()
                site.flush()
        except Exception as error:  # unless a strategy failed, whose it was is not known
            site.fail_for(error)

    # --- the controller ------------------------------------------------------------------------------------------------

    def _tell_controller(self) -> None:
        now = time.monotonic()
        if now - self._beat_s >= BEAT_S:
            self._beat_s = now
            faulthandler.dump_traceback_later(FROZEN_AFTER_S, exit=True, file=self._last_words.frozen_file)
            self._line.look()
            show_life()
            if self._site.peers.incarnation:
                self._line.beat(self._beat())
            elif now - self._greeted_s >= 1.0:
                self._greeted_s = now
                self._line.greet(self._hello)
        self._line.report(self._site.reports)

    def _beat(self) -> control.Beat:
        site = self._site
        with site.lock:
            running = site.worker.running
            running_s = 0.0 if site.running_since is None else time.monotonic() - site.running_since
            self._look_at_states()
            site.look_at_leases()
            for job in site.jobs.values():
                job.refresh()
                job.figures.rounds, job.figures.gathered = site.worker.rounds.get(job.id, (0, 0))
                site.tell_pressure_of(job, is_time=True)
                job.figures.waiting = ()
            for name, told in site.barriers_waiting():
                if name in site.jobs:
                    site.jobs[name].figures.waiting += (told,)
            figures = control.WorkerFigures(
                busy_s=site.busy_s + running_s,
                messages=site.messages,
                queued_bytes=sum(job.budget.queued for job in site.jobs.values()),
                rss_bytes=_resident_bytes(),
                running=site.handling if running is None else running.to,
                running_s=running_s,
                refused=dict(site.refusals.counts),
            )
            return control.Beat(site.peers.incarnation, figures, {job.id: job.figures for job in site.jobs.values()})

    def _look_at_states(self) -> None:
        """Under the lock: some states at a time, so that thousands of actors do not hold up the worker."""
        worker = self._site.worker
        for job in self._site.jobs.values():
            specs = job.specs
            for _ in range(min(len(specs), _STATES_AT_ONCE)):
                address = specs[job.state_cursor % len(specs)].address
                job.state_cursor += 1
                size = self._site.state_bytes(address) if address in worker.parties else 0
                job.budget.state_bytes += size - job.state_sizes.get(address, 0)
                job.state_sizes[address] = size

    def _obey(self) -> None:
        for order in self._line.orders():
            self._do(order)
        if self._is_done:
            self._line.acknowledge()

    def _do(self, order: control.ToWorker) -> None:
        site = self._site
        match order:
            case control.Welcome():
                site.peers.incarnation = order.incarnation
                self._posting.connect(order.log, site.worker.id, order.incarnation)
                with site.lock:
                    site.set_members(order.members)
            case control.Members():
                with site.lock:
                    site.set_members(order.members, order.left)
            case control.Install():
                # In a thread of its own: it runs the user's imports, and the worker thread may be busy with others.
                threading.Thread(target=self._install, args=(order,), name=f"install {order.job}", daemon=True).start()
            case control.Start():
                self._change(order.job, lambda job: self._start(job, order))
            case control.Helpers():
                self._change(order.job, lambda job: self._set_helpers(job, order))
            case control.DrainJob():
                self._change(order.job, lambda job: job.end_source(order.source))
            case control.Remove():
                self._remove(order.job)
            case control.Release():
                site.report(control.Released(order.request, self._release(order)))
            case control.Stop():
                self._is_done = True
            case control.Pulse():
                pass

    def _change(self, name: str, change: Callable[[InstalledJob], None]) -> None:
        with self._site.lock:
            job = self._site.jobs.get(name)
            if job is not None:
                change(job)
                if self._site.is_idle:
                    self._site.wake_worker()

    def _start(self, job: InstalledJob, order: control.Start) -> None:
        self._set_helpers(job, order)
        job.is_started = True

    def _set_helpers(self, job: InstalledJob, order: control.Start | control.Helpers) -> None:
        job.helpers = frozenset(order.helpers)
        job.helpers_version = order.version
        self._site.count_helpers()

    def _install(self, order: control.Install) -> None:
        site = self._site
        try:
            job = InstalledJob(order, site.worker.id, site.post_result, site.schemas, self._folder)
            with site.lock:
                if order.job in self._removed:
                    job.close()
                    return
                site.add(job)
        except BaseException as error:  # whatever the user's imports raise
            trace = "".join(traceback.format_exception(error))
            sentence = " ".join(f"{type(error).__name__}: {error}".split())
            site.report(control.Installed(order.job, sentence, trace))
            return
        site.report(control.Installed(order.job, pushed=tuple(job.staging)))

    def _remove(self, name: str) -> None:
        with self._site.lock:
            self._removed.append(name)
            job = self._site.jobs.get(name)
            if job is not None:
                job.refresh()
                job.figures.rounds, job.figures.gathered = self._site.worker.rounds.get(name, (0, 0))
            self._site.report(control.Removed(name, control.JobFigures() if job is None else job.figures))
            self._site.remove(name)
        if self._executor.interrupt(name):
            self._condemned[name] = time.monotonic() + STOP_AFTER_S

    def _release(self, order: control.Release) -> str:
        with self._site.lock:
            job = self._site.jobs.get(order.job)
        if job is None:
            return "the job has ended"
        try:
            return job.release(order.source, order.query, order.batch, order.attempts)
        except StagingError as error:
            return str(error)
        except Exception as error:
            return f"the worker cannot release rows: {type(error).__name__}: {error}"


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not every system has it; the largest so far is better than nothing
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
