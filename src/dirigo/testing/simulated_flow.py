"""One flow of a simulation: its job, the rows that come out of it, and how well it was served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from typing import Any

import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.api.dataflow import Dataflow, live_nodes
from dirigo.flow.operators.process.process import Process
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.plan.states import StageStates
from dirigo.flow.sinks.memory import MemorySink
from dirigo.kernel import FunctionSpec, Worker, WorkerId
from dirigo.scheduling.accounting import Account, Satisfaction, percentiles
from dirigo.testing.scripted import ScriptedSource


class SimulatedFlow:
    """What ``simulation["name"]`` gives: rows and figures of one flow, while it runs and afterwards."""

    def __init__(
        self, flow: Dataflow, workers: Iterable[WorkerId], scripted: Mapping[str, ScriptedSource], *, writes: bool
    ) -> None:
        self.flow = flow
        self.scripted = scripted
        self._collected: dict[str, MemorySink] = {}
        for node in live_nodes(flow):
            if isinstance(node.work, SinkRows):
                sink = node.work.sink if writes else MemorySink(node.name)
                if isinstance(sink, MemorySink):
                    self._collected[node.name] = sink
        self.job = BoundJob(flow, list(workers), sources=scripted, sinks=None if writes else self._collected)
        self.job.prepare_sinks()
        # The flow's own sinks may be used again, by a later run. What they collect from now on is this run's, and stays so.
        self._collected = {name: copy(sink) for name, sink in self._collected.items()}
        self.specs: list[FunctionSpec] = self.job.specs(performs_work=False)  # its time goes by on the virtual clock
        self.leaves = {spec.address for spec in self.specs if not spec.downstreams}
        self.account = Account()  # of what was executed: latencies, how much was in time, and why not
        self.elsewhere: Counter[str] = Counter()  # operator -> messages that ran at a lessee
        self.workers: Collection[Worker] = ()  # of the simulation, once they are there

    def __repr__(self) -> str:
        return f"<the run of '{self.name}'>"

    @property
    def name(self) -> str:
        return self.flow.name

    def rows(self, sink: str | None = None) -> list[dict[str, Any]]:
        """What has come to a sink so far; the name can be left out if there is only one."""
        return self.sink(sink).rows

    def table(self, sink: str | None = None) -> pa.Table:
        return self.sink(sink).table

    def sink(self, sink: str | None = None) -> MemorySink:
        """Where the rows of a sink are collected."""
        if not self._collected:
            raise DirigoError(f"no sink of '{self.name}' keeps rows; end a stream with dg.to_memory() to have them.")
        if sink is None and len(self._collected) == 1:
            (sink,) = self._collected
        if sink not in self._collected:
            raise DirigoError(f"name one of the sinks {', '.join(self._collected)}, not {sink!r}.")
        return self._collected[sink]

    def state(self, operator: str) -> dict[Any, dict[str, Any]]:
        """What a function holds now, wherever it ran: for each key, or partition, the value of each state.

        It is to be called when nothing is on its way: after ``finish()``, or ``advance()`` by long enough.
        """
        stages = self.job.plan.stages
        found = {stage.name: (stage, stage.operator) for stage in stages if isinstance(stage.operator, Process)}
        if operator not in found:
            raise DirigoError(f"name one of the functions {', '.join(found) or '(there are none)'}, not {operator!r}.")
        stage, process = found[operator]
        held: dict[Any, dict[str, Any]] = {}
        for partition, address in enumerate(stage.addresses):
            participants = [worker.participants.get(address) for worker in self.workers]
            states = [getattr(each, "states", None) for each in participants]
            for key, values in process.look_at(partition, [each.own for each in states if isinstance(each, StageStates)]):
                # Python takes the two hours at the end of summer time for equal; their texts tell them apart.
                held[repr(key) if key in held else key] = values
        return held

    @property
    def sinks(self) -> list[str]:
        return list(self._collected)

    @property
    def late_rows_dropped(self) -> dict[str, int]:
        """How many rows came too late and had nowhere to go, by the operator that they were too late for."""
        return dict(+self.job.plan.late_rows_dropped)

    @property
    def satisfaction(self) -> Satisfaction:
        """How well the flow's latency objective was met, in virtual time."""
        return self.account.report()

    @property
    def latency_ms(self) -> dict[str, float]:
        """p50, p95, p99 and max of results, in virtual time."""
        return percentiles(self.account.latencies)
