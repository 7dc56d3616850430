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

from dirigo.flow.errors import cut_text, said
from dirigo.kernel.worker_loads import TELL_EVERY_S
from dirigo.runtime import control
from dirigo.runtime.failures import TRACE_CHARACTERS_MOST
from dirigo.runtime.folders import show_life
from dirigo.runtime.results.poster import LogPosting
from dirigo.runtime.transport.authenticator import Authenticator
from dirigo.runtime.transport.peers import CONTROL, DATA
from dirigo.runtime.worker.clock import WorkerClock
from dirigo.runtime.worker.controller_line import Line
from dirigo.runtime.worker.core import WorkerCore
from dirigo.runtime.worker.executor import Executor
from dirigo.runtime.worker.inbound import InboundSockets
from dirigo.runtime.worker.installed_job import InstalledJob
from dirigo.runtime.worker.last_words import LastWords

BEAT_S = 0.25
TEND_S = TELL_EVERY_S
# Without the interpreter. By the wall clock, so a process that was suspended for as long ends too when it goes on: a timer
# by the time that the process has used would not see code that keeps the interpreter lock while it waits.
FROZEN_AFTER_S = float(os.environ.get("DIRIGO_FROZEN_AFTER_S", "8"))
_STATES_AT_ONCE = 256  # whose size is looked at per beat

_log = logging.getLogger(__name__)


class StuckError(RuntimeError):
    """Code of a removed job does not stop, so the worker ends."""


class Fetcher:
    """The loop of the fetcher thread."""

    def __init__(
        self,
        core: WorkerCore,
        executor: Executor,
        authenticator: Authenticator,
        inbound: tuple[zmq.Socket[bytes], zmq.Socket[bytes]],
        line: Line,
        posting: LogPosting,
        hello: control.Hello,
        folder: Path,
        last_words: LastWords,
        clock: WorkerClock,
        stop_executor: Callable[[BaseException | None], None],
    ) -> None:
        self._core = core
        self._executor = executor
        self._authenticator = authenticator
        self._inbound = InboundSockets(core, inbound)
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
        inbound = self._inbound
        watched = [
            *inbound.sockets,
            self._line.socket,
            self._posting.socket,
            self._authenticator.socket,
            *self._authenticator.monitors,
        ]
        for socket in watched:
            poller.register(socket, zmq.POLLIN)
        poller.register(self._core.signal.descriptor, zmq.POLLIN)
        control_socket, data_socket = inbound.sockets
        while not self._is_done:
            ready = dict(poller.poll(int(TEND_S * 1000)))
            if control_socket in ready:
                inbound.take_in(CONTROL)
            if self._line.socket in ready:
                self._obey()
            if data_socket in ready:
                inbound.take_in(DATA)
            if self._core.signal.descriptor in ready:
                self._core.signal.silence()
            if self._authenticator.socket in ready:
                self._authenticator.answer()
            for monitor in self._authenticator.monitors:
                if monitor in ready:
                    self._authenticator.look(monitor)
            if self._posting.socket in ready:
                self._posting.receive(self._core)
            self._posting.post(self._core)
            self._tell_controller()
            now = time.monotonic()
            if now - self._tended_s >= TEND_S:
                self._tended_s = now
                self._tend(now)

    # --- now and then -------------------------------------------------------------------------------------------------

    def _tend(self, now: float) -> None:
        if self._given_up is not None:
            raise RuntimeError(self._given_up)
        self._authenticator.tend()
        self._clock.follow()
        core = self._core
        with core.lock:
            silent = core.peers.tend()
            worker = core.worker
            worker.now = core.clock()
            self._fire_timers()
            core.tell_load()
            core.signal.silence()  # and look: should it ever have been rung half, it is heard again from now on
            lost = [
                control.PeerLost(peer.member.worker, peer.member.incarnation, core.users_of(peer.member.worker))
                for peer in silent
            ]
        for each in lost:
            core.report(each)
        for job, until in list(self._condemned.items()):
            if now >= until and self._executor.busy_with() == job:
                leftover = self._executor.leftover() or job
                core.report(control.Stuck(leftover))
                self._line.report(core.reports)
                raise StuckError(f"{leftover} does not stop, although its job is over")
            if now >= until:
                del self._condemned[job]

    def _fire_timers(self) -> None:
        core = self._core
        try:
            due = core.worker.next_timer()
            if due is not None and due <= core.worker.now:
                core.worker.fire_timers()
                core.flush()
        except Exception as error:  # unless a strategy failed, whose it was is not known
            core.fail_for(error)

    # --- the controller ------------------------------------------------------------------------------------------------

    def _tell_controller(self) -> None:
        now = time.monotonic()
        if now - self._beat_s >= BEAT_S:
            self._beat_s = now
            faulthandler.dump_traceback_later(FROZEN_AFTER_S, exit=True, file=self._last_words.frozen_file)
            self._line.look()
            show_life()
            if self._core.peers.incarnation:
                self._line.beat(self._beat())
            elif now - self._greeted_s >= 1.0:
                self._greeted_s = now
                self._line.greet(self._hello)
        self._line.report(self._core.reports)

    def _beat(self) -> control.Beat:
        core = self._core
        with core.lock:
            running = core.worker.running
            running_s = 0.0 if core.running_since is None else time.monotonic() - core.running_since
            self._look_at_states()
            core.look_at_leases()
            for job in core.jobs.values():
                job.refresh()
                job.figures.rounds, job.figures.gathered = core.worker.rounds.get(job.id, (0, 0))
                core.tell_pressure_of(job, is_time=True)
                job.figures.waiting = ()
            for name, told in core.barriers_waiting():
                if name in core.jobs:
                    core.jobs[name].figures.waiting += (told,)
            figures = control.WorkerFigures(
                busy_s=core.busy_s + running_s,
                messages=core.messages,
                queued_bytes=sum(job.budget.queued for job in core.jobs.values()),
                rss_bytes=_resident_bytes(),
                running=core.handling if running is None else running.to,
                running_s=running_s,
                refused=dict(core.refusals.counts),
                leftover=self._executor.leftover(),
            )
            return control.Beat(core.peers.incarnation, figures, {job.id: job.figures for job in core.jobs.values()})

    def _look_at_states(self) -> None:
        """Under the lock: some states at a time, so that thousands of actors do not hold up the worker."""
        worker = self._core.worker
        for job in self._core.jobs.values():
            specs = job.specs
            for _ in range(min(len(specs), _STATES_AT_ONCE)):
                address = specs[job.state_cursor % len(specs)].address
                job.state_cursor += 1
                size = self._core.state_bytes(address) if address in worker.participants else 0
                job.budget.state_bytes += size - job.state_sizes.get(address, 0)
                job.state_sizes[address] = size

    def _obey(self) -> None:
        for order in self._line.orders():
            self._do(order)
        if self._is_done:
            self._line.acknowledge()

    def _do(self, order: control.ToWorker) -> None:
        core = self._core
        match order:
            case control.Welcome():
                core.peers.incarnation = order.incarnation
                self._posting.connect(order.log, core.worker.id, order.incarnation)
                with core.lock:
                    core.set_members(order.members)
            case control.Members():
                with core.lock:
                    core.set_members(order.members, order.left)
            case control.Install():
                # In a thread of its own: it runs the user's imports, and the worker thread may be busy with others.
                threading.Thread(target=self._install, args=(order,), name=f"install {order.job}", daemon=True).start()
            case control.Start():
                self._change(order.job, lambda job: self._start(job, order))
            case control.Helpers():
                self._change(order.job, lambda job: self._set_helpers(job, order))
            case control.DrainJob():
                self._in_turn(order.job, lambda: self._change(order.job, lambda job: job.end_source(order.source)))
            case control.Remove():
                self._remove(order)
            case control.TakeSnapshot():
                self._change(order.job, lambda job: core.begin_snapshot(job, order))
            case control.ReadOn():
                self._change(order.job, lambda job: job.read_on())
            case control.CommitSnapshot():
                self._change(order.job, lambda job: core.commits.append((job, order.number)))
            case control.Release():
                self._in_turn(order.job, lambda: core.report(self._release(order)))
            case control.Stop():
                self._is_done = True
            case control.Pulse():
                pass

    def _change(self, name: str, change: Callable[[InstalledJob], None]) -> None:
        with self._core.lock:
            job = self._core.jobs.get(name)
            if job is not None:
                change(job)
                if self._core.is_idle:
                    self._core.wake_worker()

    def _in_turn(self, name: str, work: Callable[[], None]) -> None:
        """Do it now; or after what was asked for before, where that has to wait for a disk."""
        with self._core.lock:
            job = self._core.jobs.get(name)
        if job is not None and job.keeps_rows:
            self._core.rows.put(work)
        else:
            work()

    def _start(self, job: InstalledJob, order: control.Start) -> None:
        self._set_helpers(job, order)
        job.is_started = True

    def _set_helpers(self, job: InstalledJob, order: control.Start | control.Helpers) -> None:
        job.helpers = frozenset(order.helpers)
        job.helpers_version = order.version
        self._core.count_helpers()

    def _install(self, order: control.Install) -> None:
        core = self._core
        try:
            job = InstalledJob(order, core.worker.id, core.post_result, core.schemas, self._folder)
            with core.lock:
                if order.job in self._removed:
                    job.close()
                    return
                ended = job.ended_leaves()
                core.add(job)
        except BaseException as error:  # whatever the user's imports raise
            trace = "".join(traceback.format_exception(error))
            sentence, trace = " ".join(said(error).split()), cut_text(trace, TRACE_CHARACTERS_MOST)
            core.report(control.Installed(order.job, sentence, trace))
            return
        core.report(control.Installed(order.job, pushed=tuple(job.staging)))
        for address in ended:
            core.report(control.ActorEnded(order.job, address))

    def _remove(self, order: control.Remove) -> None:
        name = order.job
        with self._core.lock:
            self._removed.append(name)
            figures = self._core.last_figures(name)
            self._core.remove(name, goes_on=order.goes_on)
        if self._executor.interrupt(name):
            self._condemned[name] = time.monotonic() + control.STOP_AFTER_S
            self._beat_s = 0.0  # the controller hears of it first, and places no job here meanwhile
        self._core.report(control.Removed(name, figures))

    def _release(self, order: control.Release) -> control.Released:
        with self._core.lock:
            job = self._core.jobs.get(order.job)
        if job is None:
            return control.Released(order.request, "gone")
        try:
            return job.release(order)
        except Exception as error:
            # Nobody knows how far it came, so the attempts have to stay.
            sentence = f"the worker cannot release rows: {type(error).__name__}: {error}"
            return control.Released(order.request, sentence, has_begun=True)


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not every system has it; the largest so far is better than nothing
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
