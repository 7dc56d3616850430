"""What the actors of a new job at one worker begin with, read from the savepoint of another job."""

from __future__ import annotations

from typing import Any

from dirigo.flow.plan.description import describe
from dirigo.flow.plan.matching import matched
from dirigo.flow.plan.plan import Plan
from dirigo.flow.plan.resumption import Resumption
from dirigo.flow.plan.stage import Stage
from dirigo.kernel import Kept
from dirigo.runtime.client.savepoints import described_flow
from dirigo.runtime.control import Beginning
from dirigo.runtime.snapshots.codec import decode
from dirigo.runtime.snapshots.savepoint import Savepoint
from dirigo.runtime.transport.payload import Schemas, opened
from dirigo.runtime.worker.snapshots.captures import ActorHead, read_head, restored_source, restored_timers
from dirigo.runtime.worker.user_code import HostedStates


class SavepointStates:
    """A savepoint while a worker begins with it: of large states, those of one operator at a time are in memory."""

    def __init__(self, beginning: Beginning, plan: Plan, schemas: Schemas) -> None:
        self._savepoint = Savepoint.open(beginning.place)
        self._schemas = schemas
        manifest = self._savepoint.manifest
        self._heads: dict[str, ActorHead] = {
            place: read_head(entry.head) for place, entry in manifest.actors.items() if entry.head and not entry.ended
        }
        self._own: dict[str, Any] = {}
        matches = matched(described_flow(self._savepoint), describe(plan), beginning.dropped, beginning.renamed)
        readers = {place: restored_source(entry) for place, entry in manifest.sources.items() if entry is not None}
        stages = {place: head.stage for place, head in self._heads.items()}
        self.resumption = Resumption(plan, matches, readers, stages)

    def restore(self, stage: Stage, partition: int, states: HostedStates) -> Kept:
        """Have the new states of an actor go on; returns what the kernel goes on from."""
        resumption = self.resumption
        places = resumption.places_of(stage, partition) if stage.operator.state_form else []
        own = {place: self._read(place) for place in places}
        states.begin(lambda inner: resumption.restore(stage, partition, inner, own), self._schemas)
        return resumption.kept(stage, partition, lambda place: restored_timers(self._heads[place], self._schemas), opened)

    def forget_read(self) -> None:
        """What was read is not needed by other operators."""
        self._own.clear()

    def _read(self, place: str) -> Any:
        if place not in self._own:
            body, inline = self._savepoint.manifest.actors[place].body, self._heads[place].inline
            if body is not None:
                self._own[place] = decode(self._savepoint.read(body))
            else:
                self._own[place] = None if inline is None else decode(inline)
        return self._own[place]
