"""Measures what the runtime itself costs, on two real workers, for simulations to go by.

A source at one worker sends rows to a function at the other one, which does nothing with them; now and then comes a
watermark. A strategy that only looks (``Probe``) samples the processor's time of the threads that call its hooks, where the
messages come in: the fetcher calls ``enqueue``, the worker thread ``post_apply``. From one message to the next, a thread's
time is what a message takes in all: waking up, locks, transport, protocol, strategy, operator. What the process takes beyond
these two threads is for packets on their way: encryption and TCP. Medians, because threads have other duties as well, many
times a second but seldom beside the messages.

What replies of lessees cost that come together is measured on parts of workers, see ``barrier_shares``.

What a byte of state costs is the difference between barriers that collect a large and a small one. What an operator takes is
what a windowed aggregate does for a single row, and to close a window; with work that is emulated by sleeping, by how much
that is too long. Workers that wait for rows look for them, and that takes some of the cores as well.
"""

from __future__ import annotations

import os
import platform
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pyarrow as pa

from dirigo import Dataflow, Function, FunctionContext, to_nothing
from dirigo.errors import DirigoError
from dirigo.flow.sources.load_shapes import constant
from dirigo.kernel import Address, CriticalRun, RunnableMessage, SchedulingContext, operator_of
from dirigo.runtime.folders import OwnFolder
from dirigo.scheduling import Fifo, Strategy
from dirigo_lab.experiments.costs.barrier_shares import measure_shares
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.overhead.barrier import BLOCKED, KB, Setting
from dirigo_lab.experiments.overhead.on_spark import run_on_spark
from dirigo_lab.experiments.window_jobs.job_flow import WINDOWS, flow_of
from dirigo_lab.experiments.window_jobs.scheduled_rows import Entry, ScheduledRows
from dirigo_lab.experiments.window_jobs.window_job import WindowJob

WORKERS = 2
LESSEES = 32  # of barriers with many
ROWS = 5_000
BARRIERS = 60
SECONDS = 6.0  # of each windowed job
_PER_S = 500.0  # slow enough that both workers are idle when a message comes
_ROWS_PER_WATERMARK = 10
_SMALL_BYTES, _LARGE_BYTES = 64 * KB, 4096 * KB
_RECEIVER = "receiver"
_ARRIVAL, _FETCH, _MESSAGE, _WITH_CRITICAL, _ALL_THREADS = "arrival", "fetch", "message", "with critical", "all threads"
_SAMPLES_AT_ONCE = 500
_WINDOWED_PER_S = 40.0  # rows of each source: workers are idle for half of the time, as in experiments
_HARDLY_PER_S, _HARDLY_EVERY_S = 2.0, 1.0
_WORK_S = 0.01
_ELAPSED, _CLOSING, _BUSY, _TIMES_AT_ONCE = "elapsed", "closing", "busy", 8
_WINDOWS_EVERY_S = 0.4  # with about as many rows in each as experiments on this machine have
_LEAST_S = 1e-6  # less than any of this takes, in case a machine is too restless to tell
_TIMEOUT_S = 300.0

Told = Callable[[str], None]


class CalibrationError(DirigoError):
    """The measurement gave nothing to reckon with."""


class Receiver(Function):
    """Does nothing with what comes."""

    def on_batch(self, context: FunctionContext, batch: pa.RecordBatch) -> None: ...

    def on_watermark(self, context: FunctionContext, time_ms: int) -> None: ...


class Probe(Strategy):
    """First in, first out. Samples what messages to the receiver cost the two threads of its worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._queue: deque[RunnableMessage] = deque()
        self._samples: list[tuple[str, float]] = []
        self._fetched_s: float | None = None  # the fetcher's time when it had taken in the last row, if only rows came since
        self._ran_s: float | None = None  # the worker thread's time when it had run the last row
        self._computed_s = 0.0  # the time of all threads then
        self._criticals = 0  # that it has run since

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self._queue.append(message)
        if not _is_for_receiver(message):
            return
        if message.critical:
            self._fetched_s = None
            return
        fetched_s = time.thread_time()
        if self._fetched_s is not None:
            self._samples.append((_FETCH, fetched_s - self._fetched_s))
        self._fetched_s = fetched_s
        self._samples.append((_ARRIVAL, time.time() - message.sent))
        assert message.origin != context.id, "the source and the receiver are at one worker"  # type: ignore[union-attr]

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:  # noqa: ARG002
        return self._queue.popleft() if self._queue else None

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:  # noqa: ARG002
        if not _is_for_receiver(message):
            return
        if message.critical:
            self._criticals += 1
            return
        ran_s, computed_s = time.thread_time(), time.process_time()
        if self._ran_s is not None and self._criticals <= 1:
            self._samples.append((_WITH_CRITICAL if self._criticals else _MESSAGE, ran_s - self._ran_s))
            if not self._criticals:
                self._samples.append((_ALL_THREADS, computed_s - self._computed_s))
        self._ran_s, self._computed_s, self._criticals = ran_s, computed_s, 0
        if len(self._samples) >= _SAMPLES_AT_ONCE:
            self._write(context.id)
            self._ran_s = None  # writing is no part of a message

    def _write(self, worker: int) -> None:
        _append(self._folder, worker, self._samples)
        self._samples.clear()


class Stopwatch(Fifo):
    """Samples how long messages of an operator take, and how busy its worker was from one of them to the next.

    All sources tell the same times: what the last of them tells closes a window, and takes longer than what the first does.
    """

    def __init__(self, operator: str, folder: Path) -> None:
        super().__init__()
        self._operator = operator
        self._folder = folder
        self._samples: list[tuple[str, float]] = []
        self._last: tuple[float, float] | None = None  # when, and what the process had computed for by then
        self._told: dict[tuple[Address, Any], list[float]] = {}  # what each word of a time took, until all have told

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        if operator_of(message.to) != self._operator:
            return
        if isinstance(message, CriticalRun):
            told = self._told.setdefault((message.to, message.payload), [])
            told.append(elapsed_s)
            if len(told) == WORKERS:
                del self._told[message.to, message.payload]
                self._samples.append((_CLOSING, told[-1] - told[0]))
            return
        self._samples.append((_ELAPSED, elapsed_s))
        now, computed_s = time.monotonic(), time.process_time()
        if self._last is not None:
            self._samples.append((_BUSY, (computed_s - self._last[1]) / (now - self._last[0])))
        self._last = (now, computed_s)
        if len(self._samples) >= _TIMES_AT_ONCE:
            _append(self._folder, context.id, self._samples)
            self._samples.clear()


def _append(folder: Path, worker: int, samples: list[tuple[str, float]]) -> None:
    with (folder / f"{worker}.jsonl").open("ab") as file:
        file.write(b"".join(msgspec.json.encode(sample) + b"\n" for sample in samples))


def _medians(folder: Path) -> dict[str, float]:
    """Of each kind of sample."""
    found: dict[str, list[float]] = {}
    for file in folder.glob("*.jsonl"):
        for kind, seconds in msgspec.json.Decoder(tuple[str, float]).decode_lines(file.read_bytes()):
            found.setdefault(kind, []).append(seconds)
    return {kind: median(its[len(its) // 10 :]) for kind, its in found.items()}  # the first ones warm up


def calibrate_costs(cluster: Any, told: Told, *, rows: int, barriers: int, seconds: float) -> RuntimeCosts:
    """Measure on a cluster of two workers of this machine on which nothing else runs."""
    told(f"{rows:,} messages from one worker to the other ...")
    samples = _messages(cluster, rows)
    fetch_s, message_s = samples[_FETCH], samples[_MESSAGE]
    told("a windowed aggregate ...")
    windowed = _windowed(cluster, seconds, _WINDOWED_PER_S, 0.0)
    operator_s = windowed[_ELAPSED]
    told("a windowed aggregate, with emulated work ...")
    with_work_s = _windowed(cluster, seconds, _WINDOWED_PER_S, _WORK_S)[_ELAPSED]
    told("workers that wait for rows ...")
    idle_share = _windowed(cluster, seconds, _HARDLY_PER_S, 0.0, _HARDLY_EVERY_S)[_BUSY]
    told("barriers with a small state ...")
    small_s = _barrier_s(cluster, _SMALL_BYTES, barriers)
    told("barriers with a large state ...")
    large_s = _barrier_s(cluster, _LARGE_BYTES, barriers)
    told("barriers with many lessees ...")
    shares = measure_shares(LESSEES, barriers)
    costs = {
        # A message is offered to the strategy when the fetcher is about done with it.
        "hop_s": samples[_ARRIVAL] - fetch_s,
        "packet_s": samples[_ALL_THREADS] - fetch_s - message_s,
        "fetch_s": fetch_s,
        "message_s": message_s,
        "critical_s": samples[_WITH_CRITICAL] - message_s,
        "reply_s": shares.reply_s,
        "send_s": shares.send_s,
        "operator_s": operator_s,
        "closing_s": windowed[_CLOSING],
        "wake_s": with_work_s - _WORK_S - operator_s,
    }
    bytes_per_s = (_LARGE_BYTES - _SMALL_BYTES) / max(_LEAST_S, large_s - small_s)
    return RuntimeCosts(
        **{name: max(_LEAST_S, round(seconds, 6)) for name, seconds in costs.items()},
        idle_share=round(idle_share, 4),
        state_bytes_per_s=round(bytes_per_s, -6),
        cores=os.cpu_count() or 1,
        machine=machine(),
    )


def machine() -> str:
    """A few words about this machine."""
    return f"{os.cpu_count()} cores, {_cpu_model()}, Python {platform.python_version()}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not every system has it
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _messages(cluster: Any, rows: int) -> dict[str, float]:
    """The median of each kind of sample, in seconds."""
    with OwnFolder("costs") as folder:
        flow = Dataflow("costs", watermark_every="1ms")
        source = flow.source(ScheduledRows(partial(_schedule, rows)))
        source.process(Receiver, {"value": int}, name=_RECEIVER).sink(to_nothing())
        cluster.submit(flow, strategy=Probe(folder)).wait(_TIMEOUT_S)
        found = _medians(folder)
    if {_ARRIVAL, _FETCH, _MESSAGE, _WITH_CRITICAL, _ALL_THREADS} - found.keys():
        raise CalibrationError(f"of {rows} messages too few were sampled to tell what they cost; give more.")
    return found


def _windowed(
    cluster: Any, seconds: float, per_s: float, work_s: float, every_s: float = _WINDOWS_EVERY_S
) -> dict[str, float]:
    """What a windowed aggregate takes for a message with a row, if work of so many seconds is emulated beside it; and how
    busy workers are in all, with so many rows a second each."""
    load = constant(per_s)
    job = WindowJob("costs", [load] * WORKERS, range(WORKERS), WORKERS, 0.0, work_s, every_s, objective_s=60.0)
    with OwnFolder("costs") as folder:
        flow = flow_of(job, seconds)
        cluster.submit(flow, strategy=Stopwatch(WINDOWS, folder)).wait(_TIMEOUT_S)
        found = _medians(folder)
    if {_ELAPSED, _CLOSING, _BUSY} - found.keys():
        raise CalibrationError("too few messages were sampled to tell what an operator costs; is this machine very busy?")
    return found


def _barrier_s(cluster: Any, state_bytes: int, barriers: int) -> float:
    outcome = run_on_spark(cluster, Setting(1, state_bytes), barriers, {}, 0)
    durations_ms = next(each.latency_ms for each in outcome.latencies if each.job == BLOCKED)
    if not len(durations_ms):
        raise CalibrationError(
            "no barrier was seen from its beginning to its end; try again on a machine that is less busy."
        )
    return float(median(durations_ms)) / 1000


def _schedule(rows: int) -> Iterator[Entry]:
    for number in range(rows):
        yield Entry(number / _PER_S, number)
        if (number + 1) % _ROWS_PER_WATERMARK == 0:
            yield Entry((number + 0.5) / _PER_S, None)


def _is_for_receiver(message: RunnableMessage) -> bool:
    return operator_of(message.to) == _RECEIVER
