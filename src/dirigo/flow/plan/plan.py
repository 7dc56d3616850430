"""The plan of a flow: its stages, connected. It is made once, where a flow is submitted, and shipped to the workers.

A plan belongs to no job until it is bound to one: then its actors have addresses. What was needed to make it, the graph that
the user wrote, stays where it was made; so do the splits of its sources, of which each worker opens those that it reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.errors import OperatorFailure
from dirigo.flow.plan.emulation import by_place
from dirigo.flow.plan.planner import Planner
from dirigo.flow.sinks.sink import Sink
from dirigo.flow.sources.reader import SourceReader
from dirigo.flow.sources.source import Source
from dirigo.kernel import Address

_NOT_SHIPPED = ("links", "nodes")


class Plan:
    """The stages of a flow, connected."""

    def __init__(
        self,
        flow: Dataflow,
        job: str | None = None,
        sources: Mapping[str, Source] | None = None,
        sinks: Mapping[str, Sink] | None = None,
    ) -> None:
        """``sources`` and ``sinks`` stand in for those of the flow, by the names of their operators."""
        planner = Planner(flow, sources or {}, sinks or {})
        self.name = job or flow.name  # whatever it is bound to later
        self.slo = flow.slo
        self.labels = flow.labels
        self.nodes = planner.nodes  # as the user wrote them
        self.links = planner.links
        self.stages = planner.stages
        self.edges = planner.edges
        self.readers = planner.readers
        self.late_rows_dropped = planner.late_rows_dropped  # by the operator that they were too late for, in this process
        self.work = by_place(flow, planner)  # what is emulated, of the actors that have any
        self.bind(self.name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _NOT_SHIPPED}

    def bind(self, job: str) -> None:
        """Give the plan to a job: from now on its actors have addresses."""
        self.job = job
        for stage in self.stages:
            stage.bind(job)
        for edge in self.edges:
            edge.bind(job)
        for reader in self.readers:
            reader.bind(job)

    @property
    def addresses(self) -> list[Address]:
        return [address for stage in self.stages for address in stage.addresses]

    def open_splits(self, here: Collection[Address]) -> list[SourceReader]:
        """Open the splits that are read at these actors, and touch no source that is read elsewhere only."""
        by_operator: defaultdict[str, list[SourceReader]] = defaultdict(list)
        for reader in self.readers:
            by_operator[reader.operator].append(reader)
        opened: list[SourceReader] = []
        for operator, readers in by_operator.items():
            if not any(reader.address in here for reader in readers):
                continue
            splits = readers[0].source.splits(readers[0].splits_wanted)
            for reader, split in zip(readers, splits, strict=False):
                if reader.address in here:
                    reader.split = split
                    opened.append(reader)
                else:
                    split.close()
            if len(splits) != len(readers):
                for split in splits:
                    split.close()
                raise OperatorFailure(
                    f"source '{operator}' has {len(splits)} splits here and {len(readers)} where it was submitted; "
                    "see that all machines see the same files."
                )
        return opened

    def close_splits(self) -> None:
        """Close all that were opened to make the plan."""
        for reader in self.readers:
            reader.split.close()
