"""From the graph that a user wrote to the stages that run: which steps are fused, how many partitions, who sends to whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import gcd
from typing import TypeVar

from dirigo.flow.api.dataflow import Dataflow, Node, SourceNode, StreamOutput, consumers, live_nodes
from dirigo.flow.errors import FlowError
from dirigo.flow.exchange.edge import Edge, Exchange, Onward
from dirigo.flow.exchange.emitter import ERRORS_OUTPUT, LATE, MAIN, Branch
from dirigo.flow.operators.operator import Operator
from dirigo.flow.operators.pass_through import PassThrough
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.operators.steps import Step, StepBranch
from dirigo.flow.plan.stage import Stage, StageLink
from dirigo.flow.sinks.sink import Sink
from dirigo.flow.sources.reader import SourceReader
from dirigo.flow.sources.source import Source

T = TypeVar("T")


class Planner:
    """Turns one flow into stages. What comes of it is in its public attributes."""

    def __init__(self, flow: Dataflow, sources: Mapping[str, Source], sinks: Mapping[str, Sink]) -> None:
        """``sources`` and ``sinks`` stand in for those of the flow, by the names of their operators."""
        self.flow = flow
        self._sources = _known(flow, sources, "source")
        self._sinks = _known(flow, sinks, "sink")
        self.nodes = live_nodes(flow)
        self.stages: list[Stage] = []
        self.readers: list[SourceReader] = []
        self.links: list[StageLink] = []
        self.edges: list[Edge] = []
        self.late_rows_dropped: Counter[str] = Counter()  # by the operator that they were too late for, in this process
        self._stage_of: dict[Node, Stage] = {}
        self._handles_errors = self._after_errors()
        for node in self.nodes:
            self._place(node)
        for node in self.nodes:
            if self._heads(node):
                self._connect(node)
        self._keep_order()
        self._spare_watermarks()

    # --- stages --------------------------------------------------------------------------------------------------------

    def _place(self, node: Node) -> None:
        """Give a node a stage of its own, or fuse it to the one that it reads from."""
        work = node.work
        if isinstance(work, Operator):
            self._stage_of[node] = self._new_stage(node, work)
            return
        (upstream,) = node.inputs
        stage = self._stage_of[upstream.node]
        if upstream.name == MAIN and (work.is_cheap or not stage.operator.runs_alone):
            stage.steps.append(work.describe())
            self._stage_of[node] = stage
            _limit(stage, node)
            return
        passing = PassThrough(work.name, work, work.kind, work.describe())
        self._stage_of[node] = self._new_stage(node, passing)

    def _new_stage(self, node: Node, operator: Operator) -> Stage:
        if isinstance(node, SourceNode):
            source = self._sources.get(node.name, node.source)
            splits = source.splits(node.splits)
            partitions = len(splits)
        elif operator.is_single:
            partitions = 1
        elif operator.is_keyed:
            partitions = self.flow.partitions
        elif node is self.flow.errors_node:
            partitions = 1
        else:
            partitions = max(self._senders(upstream) for upstream in node.inputs)
        if isinstance(operator, SinkRows) and operator.name in self._sinks:
            operator = SinkRows(operator.name, operator.schema, self._sinks[operator.name])
        # Behind the stream of errors there is no second one: a bad row there fails the job.
        on_error = "fail" if node in self._handles_errors else self.flow.on_error
        stage = Stage(operator, partitions, on_error, self.late_rows_dropped)
        _limit(stage, node)
        stage.upstreams = [set() for _ in range(partitions)]
        stage.downstreams = [set() for _ in range(partitions)]
        if isinstance(node, SourceNode):
            for number, split in enumerate(splits):
                place = f"{operator.name}.source/{number}"
                reader = SourceReader(source, split, place, stage.places[number], self.flow.watermark_every_ms)
                reader.splits_wanted = node.splits
                stage.upstreams[number].add(place)
                self.readers.append(reader)
        self.stages.append(stage)
        return stage

    def _senders(self, output: StreamOutput) -> int:
        """How many partitions an output comes from: late rows come from wherever they were found to be late."""
        work = output.node.work
        if output.name == LATE and isinstance(work, Operator) and not work.finds_late_rows:
            return max(self._stage_of[upstream.node].partitions for upstream in output.node.inputs)
        return self._stage_of[output.node].partitions

    def _heads(self, node: Node) -> bool:
        """Whether a node is the first of its stage."""
        return self._stage_of[node].name == node.name

    # --- connections ---------------------------------------------------------------------------------------------------

    def _connect(self, node: Node) -> None:
        stage = self._stage_of[node]
        if isinstance(node.work, Step):  # behind an actor that only passes rows on
            step = StepBranch(node.work)
            step.branches = self._branches(stage, StreamOutput(node))
            stage.outlets[MAIN] = [step]
        else:
            stage.outlets[MAIN] = self._branches(stage, StreamOutput(node))
            if node.work.finds_late_rows:
                stage.outlets[LATE] = self._branches(stage, StreamOutput(node, LATE))
        if self.flow.errors_node is not None and node not in self._handles_errors:
            errors = self._stage_of[self.flow.errors_node]
            stage.outlets[ERRORS_OUTPUT] = [self._edge(stage, errors, 0, Onward(), ERRORS_OUTPUT, [])]

    def _branches(self, stage: Stage, output: StreamOutput) -> list[Branch]:
        """All ways on from an output, as seen by the stage that produces it."""
        branches: list[Branch] = []
        for node, port in consumers(self.nodes, output):
            target = self._stage_of[node]
            work = node.work
            if isinstance(work, Step) and target is stage:
                step = StepBranch(work)
                step.branches = self._branches(stage, StreamOutput(node))
                branches.append(step)
            elif isinstance(work, Step):
                branches.append(self._edge(stage, target, 0, Onward(), output.name, []))
            else:
                late = [] if work.finds_late_rows else self._branches(stage, StreamOutput(node, LATE))
                branches.append(self._edge(stage, target, port, work.exchange(port), output.name, late))
        return branches

    def _edge(self, sender: Stage, receiver: Stage, port: int, exchange: Exchange, output: str, late: list[Branch]) -> Edge:
        every = range(receiver.partitions)
        for number, place in enumerate(sender.places):
            for partition in (number % receiver.partitions,) if isinstance(exchange, Onward) else every:
                sender.downstreams[number].add(receiver.places[partition])
                receiver.upstreams[partition].add(place)
        keys = getattr(exchange, "keys", ())
        described = "onward" if isinstance(exchange, Onward) else f"by {', '.join(keys)}" if keys else "all to one"
        self.links.append(StageLink(sender, receiver, output, described))
        edge = Edge(exchange, receiver.name, receiver.places, port, late)
        self.edges.append(edge)
        return edge

    def _keep_order(self) -> None:
        """Rows that ran at several workers arrive in any order: what feeds an operator that minds must not spread them."""
        for stage in reversed(self.stages):
            if stage.operator.needs_order or stage.keeps_order:
                for link in self.links:
                    if link.receiver is stage and link.sender.operator.emits_per_row:
                        link.sender.keeps_order = True

    def _spare_watermarks(self) -> None:
        """A watermark is a barrier: have each stage pass on only those that change something downstream."""
        for stage in reversed(self.stages):
            stage.told_grid_ms = gcd(*(link.receiver.heard_grid_ms for link in self.links if link.sender is stage))
        by_place = {place: stage for stage in self.stages for place in stage.places}
        for reader in self.readers:
            reader.grid_ms = by_place[reader.target].heard_grid_ms

    def _after_errors(self) -> set[Node]:
        """The stream of errors and all that is made of it: what goes wrong there has nowhere to go."""
        after: set[Node] = set()
        for node in self.nodes:
            if node is self.flow.errors_node or any(upstream.node in after for upstream in node.inputs):
                after.add(node)
        return after


def _limit(stage: Stage, node: Node) -> None:
    """Hold the actors of a stage to what was said of one of its nodes."""
    if node.lessees_max is not None:
        limit = node.lessees_max
        stage.lessees_max = limit if stage.lessees_max is None else min(limit, stage.lessees_max)


def _known(flow: Dataflow, substitutes: Mapping[str, T], kind: str) -> Mapping[str, T]:
    """Refuse a substitute for something that the flow does not have."""
    wanted = SourceNode if kind == "source" else Node
    names = [
        node.name
        for node in flow.nodes
        if isinstance(node, wanted) and (kind == "source" or isinstance(node.work, SinkRows))
    ]
    for name in substitutes:
        if name not in names:
            raise FlowError(f"dataflow '{flow.name}' has no {kind} '{name}'; it has {', '.join(names)}.")
    return substitutes
