"""What the actors of a job begin with, as it was written: timers are sealed, and their keys are not to be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import dirigo as dg
from dirigo.flow.event_time.watermark import ChannelProgress
from dirigo.flow.exchange.payloads import Own
from dirigo.flow.exchange.shares import Share
from dirigo.flow.operators.process.timers import Alone, Wake
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.plan.description import describe, written
from dirigo.flow.plan.states import StageHead
from dirigo.kernel import Kept
from dirigo.runtime.control import Beginning
from dirigo.runtime.snapshots.addresses import place_at
from dirigo.runtime.snapshots.manifest import ActorEntry, SnapshotManifest, manifest_name, write_record
from dirigo.runtime.transport.payload import Schemas, opened, sealed
from dirigo.runtime.worker.snapshots.beginnings import SavepointStates
from dirigo.runtime.worker.snapshots.captures import actor_head
from dirigo.runtime.worker.user_code import HostedStates
from runtime.clusters import SCHEMA, numbers

KEYS = range(13)


class Asking(dg.Function):
    """Wants to run alone."""

    def on_message(self, context: Any, row: Any) -> None:
        context.run_alone(row.n)

    def on_timer(self, context: Any, payload: Any) -> None:
        context.emit({"n": payload})


def asking(partitions: int) -> BoundJob:
    flow = dg.Dataflow("asking", partitions=partitions)
    source = flow.source(dg.from_generator(numbers, SCHEMA, 100, block=10, time="ts", name="numbers"))
    source.key_by("key").process(Asking, schema={"n": "int64"}, name="asking").sink(dg.to_nothing())
    return BoundJob(flow, (0,))


def test_a_wish_to_run_alone_goes_on_in_the_partition_of_its_key(tmp_path: Path) -> None:
    schemas = Schemas()
    actors = {}
    for partition in range(2):
        keys = Share(partition, 2).keys(KEYS, [pa.int64()], as_tuples=False)
        asked = [(1.0, Own(Alone(key, "twice"))) for key in keys for _ in range(2)]
        timers = [(due, sealed(own, schemas, is_handed_over=False)) for due, own in (*asked, (2.0, Own(Wake(2.0))))]
        head = actor_head(StageHead(5, ChannelProgress(5, {}, ())), Kept((), tuple(timers)))
        actors[f"asking/{partition}"] = ActorEntry(head)
    plan = written(describe(asking(2).plan))
    manifest = SnapshotManifest(job="asking~1", name="asking", number=3, began_s=0.0, actors=actors, plan=plan)
    write_record(place_at(str(tmp_path)), manifest_name(3), manifest)
    job = asking(4)
    saved = SavepointStates(Beginning(str(tmp_path)), job.plan, schemas)
    (stage,) = (each for each in job.plan.stages if each.name == "asking")
    kept: list[Any] = []
    for partition in range(4):
        states = HostedStates(lambda partition=partition: stage.new_states(partition), True)  # type: ignore[misc]
        due = [opened(payload).payload for _, payload in saved.restore(stage, partition, states).timers]
        assert due.count(Wake(2.0)) == 1
        own = [each.key for each in due if isinstance(each, Alone)]
        assert set(own) == set(Share(partition, 4).keys(KEYS, [pa.int64()], as_tuples=False))
        kept += own
    assert sorted(kept) == sorted([*KEYS, *KEYS])
