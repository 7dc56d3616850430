"""A flow made ready to run on given workers: the actors as the kernel knows them, and the readers of its sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.errors import FlowError
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.emulation import Working
from dirigo.flow.plan.plan import Plan
from dirigo.flow.plan.stage import Stage, StageBehaviour
from dirigo.flow.sinks.sink import Sink, place_of
from dirigo.flow.sources.reader import SourceReader
from dirigo.flow.sources.source import Source
from dirigo.kernel import LESSEES_MAX, NO_OBJECTIVE, Behaviour, FunctionSpec, JobProperties, States, WorkerId


class BoundJob:
    """One run of a flow."""

    def __init__(
        self,
        flow: Dataflow | Plan,
        workers: Sequence[WorkerId] = (0,),
        name: str | None = None,
        sources: Mapping[str, Source] | None = None,
        sinks: Mapping[str, Sink] | None = None,
    ) -> None:
        """``flow``: as the user wrote it, or its plan, which may come from elsewhere."""
        if isinstance(flow, Plan):
            flow.bind(name or flow.job)
        self.plan = flow if isinstance(flow, Plan) else Plan(flow, name, sources, sinks)
        self.slo = slo = self.plan.slo
        self.readers: list[SourceReader] = self.plan.readers
        objective, weight = (NO_OBJECTIVE, 1.0) if slo is None else (slo.objective, float(slo.weight))
        self.properties = JobProperties(self.name, self.plan.name, objective, weight, self.plan.labels)
        for reader in self.readers:
            reader.latency_s = objective.latency_s
        self.work = {f"{self.name}/{place}": work for place, work in self.plan.work.items()}  # emulated, by actor
        self.homes: dict[str, WorkerId] = {}
        for number, address in enumerate(self.plan.addresses):
            self.homes[address] = workers[number % len(workers)]
        for reader in self.readers:
            self.homes[reader.address] = self.homes[reader.target]

    @property
    def name(self) -> str:
        return self.plan.job

    def prepare_sinks(self) -> None:
        """Have every sink look at its place before anything runs: not when a job goes on from a snapshot."""
        sinks = self.sinks()
        self._refuse_shared_places(sinks)
        for operator in sinks:
            operator.sink.prepare(operator.schema)

    def abandon_sinks(self) -> None:
        """Have the writers of this process let go that were not closed: the job ends without its last rows."""
        for operator in self.sinks():
            operator.abandon()

    def let_go_sinks(self) -> None:
        """As ``abandon_sinks``, where only this generation of the job ends: what was prepared for a snapshot stays."""
        for operator in self.sinks():
            operator.let_go()

    def hold_back_sinks(self, generation: int) -> None:
        """The job takes snapshots: before anything runs, have sinks wait for commits (see ``SinkRows``)."""
        for operator in self.sinks():
            operator.hold_back(generation)

    def outside_sinks(self) -> list[SinkRows]:
        """Those whose rows leave the job."""
        return [operator for operator in self.sinks() if operator.sink.is_outside]

    def sinks(self) -> list[SinkRows]:
        return [stage.operator for stage in self.plan.stages if isinstance(stage.operator, SinkRows)]

    def _refuse_shared_places(self, sinks: Sequence[SinkRows]) -> None:
        """A sink owns its folder: two would replace each other's files, and one over a source would remove its input."""
        owners: dict[str, str] = {}
        for operator in sinks:
            place = place_of(operator.sink)
            if place is None:
                continue
            if place in owners:
                raise FlowError(
                    f"the sinks '{owners[place]}' and '{operator.name}' both write to '{operator.sink.place}'; "
                    "give each a folder of its own."
                )
            owners[place] = operator.name
        for reader in self.readers:
            for file in reader.source.places:
                read = file.resolve()
                owner = owners.get(str(read.parent), owners.get(str(read)))
                if owner is not None:
                    raise FlowError(
                        f"the sink '{owner}' writes to the folder that '{reader.source.name}' reads '{file}' from; "
                        "choose another folder."
                    )

    def specs(self, *, performs_work: bool = True) -> list[FunctionSpec]:
        """The actors. Emulated work is part of them unless the host accounts for it in a way of its own: see ``work``."""
        return [self._spec(stage, number, performs_work) for stage in self.plan.stages for number in range(stage.partitions)]

    def _spec(self, stage: Stage, partition: int, performs_work: bool) -> FunctionSpec:
        address = stage.addresses[partition]
        behaviour: Callable[[States], Behaviour] = partial(StageBehaviour, stage, partition)
        if performs_work and address in self.work:
            behaviour = partial(Working, behaviour, self.work[address])
        return FunctionSpec(
            address=address,
            home=self.homes[address],
            behaviour=behaviour,
            states=partial(stage.new_states, partition),
            upstreams=tuple(stage.upstreams_of(partition)),
            downstreams=tuple(stage.downstreams_of(partition)),
            ordered=stage.is_ordered,
            lessees_max=LESSEES_MAX if stage.lessees_max is None else stage.lessees_max,
            job=self.properties,
        )
