"""How the actors of a job begin with what those of another job had kept in a savepoint.

The other job may have had other operators, and other numbers of partitions. So channels are not restored one by one: each is
as far as its sender, and how far that is follows from the sources on. What comes later from an actor is never older than
that, whichever watermark it has told last.

A source that had ended tells its end once more, and so do all actors behind it: everybody downstream is new. Operators that
had ended do nothing at that end, for they have done so before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dirigo.flow.errors import OperatorFailure, said
from dirigo.flow.event_time.watermark import BEGINNING, ChannelWatermarks
from dirigo.flow.exchange.shares import Share
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.description import OperatorDescription
from dirigo.flow.plan.plan import Plan
from dirigo.flow.plan.stage import Stage
from dirigo.flow.plan.states import StageHead, StageStates
from dirigo.flow.sources.reader import ReaderCapture, SourceReader
from dirigo.kernel import Address, Kept

Timers = Sequence[tuple[float, Any]]


def _as_it_is(payload: Any) -> Any:
    return payload


class _Beginning(NamedTuple):
    """How far an actor or a reader is."""

    watermark: int  # nothing older comes from it
    times: Mapping[str, int] = {}  # by place of its upstream actors
    idle: tuple[str, ...] = ()
    is_idle: bool = False
    is_over: bool = False
    has_new_rows: bool = False  # of a source that begins at its beginning, however far time was
    own_watermark: int | None = None  # as far as it was itself; None: as far as its channels are


class Resumption:
    """What all actors of a plan begin with. Places are addresses without the job, as both jobs have them."""

    def __init__(
        self,
        plan: Plan,
        matches: Mapping[str, OperatorDescription],
        readers: Mapping[str, ReaderCapture],
        heads: Mapping[str, StageHead],
    ) -> None:
        """``matches``: what the savepoint has, by the names of operators of the plan.

        ``readers`` and ``heads`` are by places in the savepoint; a split or an actor that had ended may be missing.
        """
        self._matches = matches
        self._readers = readers
        self._heads = heads
        self._beginnings: dict[str, _Beginning] = {}
        for reader in plan.readers:
            self._beginnings[_place_of(reader.address)] = self._of_reader(reader)
        for stage in plan.stages:
            for partition, place in enumerate(stage.places):
                self._beginnings[place] = self._of_actor(stage, partition)

    # --- sources -------------------------------------------------------------------------------------------------------

    def _of_reader(self, reader: SourceReader) -> _Beginning:
        if reader.operator not in self._matches:
            return _Beginning(BEGINNING, has_new_rows=True)
        captured = self._captured(reader)
        if captured is None or captured.has_ended or captured.ends_at_once:
            return _Beginning(BEGINNING, is_over=True)
        return _Beginning(captured.watermark, is_idle=captured.is_idle)

    def _captured(self, reader: SourceReader) -> ReaderCapture | None:
        split = _place_of(reader.address).rpartition("/")[2]
        return self._readers.get(f"{self._matches[reader.operator].name}.source/{split}")

    def begin(self, reader: SourceReader) -> None:
        """Have a source go on, if the savepoint has it."""
        if reader.operator in self._matches:
            reader.resume(self._captured(reader))

    # --- actors --------------------------------------------------------------------------------------------------------

    def places_of(self, stage: Stage, partition: int) -> list[str]:
        """The actors in the savepoint from which one goes on: the same one, or all if they were as many more or fewer."""
        saved = self._matches.get(stage.name)
        if saved is None:
            return []
        partitions: Iterable[int] = range(saved.partitions)
        if saved.partitions == stage.partitions:
            partitions = (partition,)
        return [place for each in partitions if (place := f"{saved.name}/{each}") in self._heads]

    def _of_actor(self, stage: Stage, partition: int) -> _Beginning:
        upstreams = {place: self._beginnings[place] for place in sorted(stage.upstreams[partition])}
        times = {place: each.watermark for place, each in upstreams.items()}
        idle = tuple(place for place, each in upstreams.items() if each.is_idle)
        heads = [self._heads[place] for place in self.places_of(stage, partition)]
        has_new_rows = any(each.has_new_rows for each in upstreams.values())
        own_watermark = min((head.watermark for head in heads), default=None)
        if has_new_rows and not stage.operator.state_form:  # nothing was closed here that they could be too late for
            own_watermark = None
        progress = ChannelWatermarks(upstreams)
        progress.begin(times, idle, own_watermark)
        # All partitions of an operator that had ended are missing; so is all that is before it.
        has_ended = stage.name in self._matches and not heads and all(each.is_over for each in upstreams.values())
        is_over = has_ended or (bool(heads) and all(head.is_over for head in heads))
        watermark = BEGINNING if is_over else max(BEGINNING, progress.watermark - stage.operator.holds_back_ms)
        return _Beginning(watermark, times, idle, progress.is_idle, is_over, has_new_rows, own_watermark)

    def restore(self, stage: Stage, partition: int, states: StageStates, own: Mapping[str, Any]) -> None:
        """Have the new states of an actor go on. ``own``: what its operator had kept, for each of ``places_of``."""
        beginning = self._beginnings[stage.places[partition]]
        addresses = {_place_of(address): address for address in stage.upstreams_of(partition)}
        states.progress.begin(
            {addresses[place]: time for place, time in beginning.times.items()},
            [addresses[place] for place in beginning.idle],
            beginning.own_watermark,
        )
        states.is_over = beginning.is_over and not isinstance(stage.operator, SinkRows)
        states.watermark = states.progress.watermark
        captures = [own[place] for place in self.places_of(stage, partition) if own.get(place) is not None]
        if not captures or isinstance(stage.operator, SinkRows):  # what a sink had prepared is the other job's
            return
        try:
            if self._matches[stage.name].partitions == stage.partitions:
                states.own.restore(captures[0])
            else:
                stage.operator.restore_share(states.own, captures, Share(partition, stage.partitions))
        except Exception as error:  # unpickling may run user code
            what = f"operator '{stage.name}' cannot go on from its state in a savepoint: {said(error)}"
            raise OperatorFailure(what) from error

    def kept(
        self, stage: Stage, partition: int, timers_of: Callable[[str], Timers], opened: Callable[[Any], Any] = _as_it_is
    ) -> Kept:
        """What the kernel goes on from: the timers, of which nobody needs those that another partition had as well.

        ``opened`` gives what is in a payload, which may be sealed.
        """
        timers = [(place, *timer) for place in self.places_of(stage, partition) for timer in timers_of(place)]
        saved = self._matches.get(stage.name)
        if isinstance(stage.operator, SinkRows) or saved is None:
            return Kept((), ())
        if saved.partitions != stage.partitions and timers:
            share = Share(partition, stage.partitions)
            contents = [opened(payload) for _, _, payload in timers]
            needed = stage.operator.share_of_timers(contents, share)
            kept: list[tuple[str, float, Any]] = []
            known: list[tuple[str, float, Any]] = []
            for (place, due, payload), content, is_needed in zip(timers, contents, needed, strict=True):
                if is_needed and not any(each[0] != place and each[1:] == (due, content) for each in known):
                    kept.append((place, due, payload))
                    known.append((place, due, content))
            timers = kept
        return Kept((), tuple((due, payload) for _, due, payload in timers))


def _place_of(address: Address) -> str:
    return address.partition("/")[2]
