"""User code that sleeps, raises or looks around, wherever the runtime may come to run it: it harms its own job only."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from dirigo.runtime.errors import JobFailed
from dirigo.runtime.worker.core import WorkerCore
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, numbers, until

FROZEN_AFTER_S = 3.0  # of these tests: a worker that answers nothing for so long is ended
ROWS = 600


class Spreading(dg.Strategy):
    """Every second message of an actor goes to another worker, so that each barrier has states to put together."""

    def __init__(self) -> None:
        self.kept: deque[Any] = deque()
        self.turn = 0

    def enqueue(self, context: Any, message: Any) -> int | None:
        self.turn += 1
        if self.turn % 2 and context.spec(message.to).home == context.id:
            for worker in context.workers:
                if worker != context.id and context.may_forward(message, worker):
                    return int(worker)
        self.kept.append(message)
        return None

    def get_next_message(self, context: Any) -> Any:
        return self.kept.popleft() if self.kept else None


# --- what user code sees of the worker it runs in -----------------------------------------------------------------------


def witness(folder: str, what: str) -> None:
    """Note on which thread this runs, and whether the worker's lock is free for others meanwhile. Once for each place."""
    thread = threading.current_thread()
    path = Path(folder) / f"{what}.{'worker thread' if thread is threading.main_thread() else thread.name}"
    if path.exists():
        return
    core = next((each for each in gc.get_objects() if type(each) is WorkerCore), None)
    if core is None:
        return  # the client
    is_free = core.lock.acquire(timeout=2.0)
    if is_free:
        core.lock.release()
    path.write_text("free" if is_free else "held")


class Watched:
    """A value with code in every place where the runtime could run it."""

    def __init__(self, folder: str, number: int = 0) -> None:
        self.folder = folder
        self.number = number

    def _note(self, what: str) -> None:
        with contextlib.suppress(OSError):
            witness(self.folder, what)

    def __getstate__(self) -> Any:
        self._note("getstate")
        return (self.folder, self.number)

    def __setstate__(self, state: Any) -> None:
        self.folder, self.number = state
        self._note("setstate")

    def __eq__(self, other: object) -> bool:
        self._note("eq")
        return isinstance(other, Watched) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: Any) -> Watched:
        self._note("deepcopy")
        return Watched(self.folder, self.number)

    def __sizeof__(self) -> int:
        self._note("sizeof")
        return 100


def combined(one: Watched, other: Watched) -> Watched:
    one._note("combine")
    return Watched(one.folder, one.number + other.number)


def watching(folder: str) -> type[dg.Function]:
    class Watching(dg.Function):
        """Counts rows, in a state that is read everywhere, and tells others now and then."""

        scope = "partition"
        total = dg.ValueState(Watched, default=Watched(folder), combine=combined, replicated=True)

        def __init__(self) -> None:
            witness(folder, "constructor")

        def on_message(self, context: Any, row: Any) -> None:
            self.total.set(Watched(folder, self.total.get().number + 1))
            if row.n % 100 == 0 and self.total.read().number:
                context.run_alone(Watched(folder, -1))
                context.set_timer("1ms", Watched(folder, -2))

        def on_timer(self, context: Any, payload: Any) -> None:
            assert payload.number < 0
            context.emit_critical(Watched(folder, -3))

        def on_end(self, context: Any) -> None:
            context.emit({"n": self.total.get().number})

    return Watching


class PassingOn(dg.Function):
    """Gets critical messages."""

    def on_message(self, context: Any, row: Any) -> None:
        context.emit(row.asdict())

    def on_critical(self, context: Any, payload: Any) -> None:
        assert payload.number == -3


def slow_numbers(first: int, count: int) -> Any:
    time.sleep(0.01)
    return numbers(first, count)


def flow_of(name: str, function: type[dg.Function], rows: int = ROWS) -> tuple[dg.Dataflow, Any]:
    flow = dg.Dataflow(name)
    out = dg.to_memory()
    source = flow.source(dg.from_generator(slow_numbers, SCHEMA, rows, block=10, time="ts", name="numbers"), splits=2)
    counted = source.process(function, {"n": int}, name="watching")
    counted.key_by("n").process(PassingOn, {"n": int}, name="passing").sink(out)
    return flow, out


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIRIGO_FROZEN_AFTER_S", str(FROZEN_AFTER_S))
        with LocalCluster(tmp_path_factory.mktemp("logs")) as cluster:
            yield cluster


@pytest.fixture
def beside(cluster: LocalCluster) -> Iterator[None]:
    """Another job that runs meanwhile on the same workers, which all stay, and has the right rows in the end."""
    before = [(worker.id, worker.incarnation) for worker in cluster.workers()]
    flow = dg.Dataflow("beside")
    out = dg.to_memory()
    source = flow.source(dg.from_generator(slow_numbers, SCHEMA, block=100, time="ts", name="numbers"), splits=2)
    source.key_by("key").window(dg.Tumbling("1s")).aggregate(count=dg.count()).sink(out)
    handle = cluster.submit(flow)
    until(lambda: handle.metrics().rows_in, "it runs")
    yield
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in > 0
    assert [(worker.id, worker.incarnation) for worker in cluster.workers()] == before


def test_user_code_runs_on_the_worker_thread_only_and_without_the_lock(
    cluster: LocalCluster, beside: None, tmp_path: Path
) -> None:
    flow, out = flow_of("watched", watching(str(tmp_path)))
    handle = cluster.submit(flow, strategy=Spreading())
    handle.wait(PATIENCE_S)
    assert sum(row["n"] for row in out.rows) == ROWS
    assert handle.metrics().forwarded
    notes = {note.name: note.read_text() for note in tmp_path.iterdir()}
    expected = ("getstate", "setstate", "eq", "deepcopy", "sizeof", "combine", "constructor")
    assert {f"{what}.worker thread" for what in expected} <= set(notes)
    # Jobs are installed on a thread of their own, which reads them and makes one function of each kind to look at.
    assert not {name for name in notes if name.endswith(".fetcher")}
    assert set(notes.values()) == {"free"}, notes


# --- what sleeps ---------------------------------------------------------------------------------------------------------


def sleeping_once(folder: str, what: str) -> None:
    """Longer than a worker may be silent, the first time."""
    try:
        (Path(folder) / what).touch(exist_ok=False)
    except FileExistsError:
        return
    time.sleep(FROZEN_AFTER_S + 2.0)


class Sleepy:
    """A number that takes its time on its way."""

    def __init__(self, folder: str, number: int) -> None:
        self.folder = folder
        self.number = number

    def __setstate__(self, state: Any) -> None:
        self.__dict__ = state
        if self.number:
            sleeping_once(self.folder, "setstate")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sleepy) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


def counting_with(folder: str, combine: Callable[[Any, Any], Any], default: Any, plus: Callable[[Any], Any]) -> Any:
    class Counting(dg.Function):
        scope = "partition"
        total = dg.ValueState(object, default=default, combine=combine)

        def on_message(self, context: Any, row: Any) -> None:
            self.total.set(plus(self.total.get()))

        def on_watermark(self, context: Any, time_ms: int) -> None:
            """It wants to hear of time, so there are barriers."""

        def on_end(self, context: Any) -> None:
            context.emit({"n": getattr(self.total.get(), "number", self.total.get())})

    return Counting


def slow_combine(folder: str) -> Any:
    def combine(one: int, other: int) -> int:
        if one and other:
            sleeping_once(folder, "combine")
        return one + other

    return counting_with(folder, combine, 0, lambda total: total + 1)


def slow_setstate(folder: str) -> Any:
    def combine(one: Any, other: Any) -> Any:
        return Sleepy(folder, one.number + other.number)

    return counting_with(folder, combine, Sleepy(folder, 0), lambda total: Sleepy(folder, total.number + 1))


@pytest.mark.parametrize("place", [slow_combine, pytest.param(slow_setstate, marks=pytest.mark.acceptance)])
def test_user_code_that_sleeps_at_a_barrier_loses_no_worker(
    cluster: LocalCluster, beside: None, tmp_path: Path, place: Callable[[str], Any]
) -> None:
    flow, out = flow_of("sleepy", place(str(tmp_path)))
    handle = cluster.submit(flow, strategy=Spreading())
    until(lambda: any(tmp_path.iterdir()), "it sleeps")
    until(lambda: any("/watching/" in (worker.running or "") for worker in cluster.workers()), "the culprit is named")
    handle.wait(PATIENCE_S)
    assert sum(row["n"] for row in out.rows) == ROWS


# --- what raises ---------------------------------------------------------------------------------------------------------


class Refusing:
    """Cannot be read where it arrives."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return (refuse if self.number else Refusing, (self.number,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refusing) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


def refuse(number: int) -> None:
    raise KeyError(f"nobody knows {number}")


class UnspeakableError(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def raising_combine(one: int, other: int) -> int:
    if one and other:
        raise ArithmeticError("they do not add up")
    return one + other


def unspeakable_combine(one: int, other: int) -> int:
    if one and other:
        raise UnspeakableError
    return one + other


CASES = {
    "combine": (raising_combine, 0, lambda total: total + 1, "ArithmeticError: they do not add up"),
    "unpickling": (
        lambda one, other: Refusing(one.number + other.number),
        Refusing(0),
        lambda total: Refusing(total.number + 1),
        "KeyError: .*nobody knows",
    ),
    "an error without words": (unspeakable_combine, 0, lambda total: total + 1, "UnspeakableError"),
    "pickling": (
        lambda one, other: one or other,
        None,
        lambda total: total or threading.Lock(),
        "cannot pickle '_thread.lock' object",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_user_code_that_raises_at_a_barrier_fails_its_own_job_and_is_named(
    cluster: LocalCluster, beside: None, tmp_path: Path, case: str
) -> None:
    combine, default, plus, expected = CASES[case]
    flow, _ = flow_of("raising", counting_with(str(tmp_path), combine, default, plus), rows=20_000)
    handle = cluster.submit(flow, strategy=Spreading())
    with pytest.raises(JobFailed, match=expected):
        handle.wait(PATIENCE_S)
    error = handle.status().error
    assert error is not None
    assert "operator 'watching' failed" in error
    assert "for a barrier" in error


class Unmeasurable:
    """Cannot say how large it is."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __sizeof__(self) -> int:
        (Path(self.folder) / "asked").touch()
        raise RuntimeError("nobody knows")


def keeping(folder: str) -> type[dg.Function]:
    class Keeping(dg.Function):
        scope = "partition"
        ordered = True
        kept = dg.MapState(int, Unmeasurable)

        def on_message(self, context: Any, row: Any) -> None:
            self.kept[row.n] = Unmeasurable(folder)

        def on_end(self, context: Any) -> None:
            context.emit({"n": len(self.kept)})

    return Keeping


def test_states_that_cannot_be_measured_do_not_fail_a_job(cluster: LocalCluster, tmp_path: Path) -> None:
    flow, out = flow_of("unmeasurable", keeping(str(tmp_path)))
    cluster.run(flow)
    assert (tmp_path / "asked").exists()
    assert sum(row["n"] for row in out.rows) == ROWS
