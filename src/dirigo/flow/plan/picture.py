"""What there is to draw of a flow: a box for each stage and an arrow for each way that rows take between them.

It is made from the plan that would run, but no source is opened for it: a generator can be drawn and run afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dirigo.flow.api.dataflow import Dataflow, Node, SourceNode
from dirigo.flow.api.duration import format_milliseconds
from dirigo.flow.api.slo import SLO
from dirigo.flow.exchange.edge import ByKey, Edge, Onward
from dirigo.flow.exchange.emitter import LATE, MAIN, Branch
from dirigo.flow.operators.pass_through import PassThrough
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.operators.steps import Step, StepBranch
from dirigo.flow.plan.plan import Plan
from dirigo.flow.plan.stage import Stage
from dirigo.flow.sources.source import Source, SourceBatch, Split

Shape = Literal["source", "operator", "sink"]
_TEXT_MAX = 240


@dataclass(frozen=True)
class Arrow:
    """A way for rows from one box to another."""

    sender: str
    receiver: str
    label: str
    is_side_output: bool = False


@dataclass
class Box:
    """A stage. ``steps`` are lines of their own: what was fused to its operator."""

    name: str
    shape: Shape
    description: str
    partitions_min: int
    partitions_max: int
    is_ordered: bool
    lessees_max: int | None = None
    takes_errors: bool = False
    is_after_errors: bool = False
    steps: list[str] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """What it does, line by line."""
        says_nothing_new = self.description == self.name and self.steps
        return self.steps if says_nothing_new else [self.description, *self.steps]

    @property
    def marks(self) -> str:
        """How often it is there, and whether its rows may be spread over workers."""
        mode = "ordered" if self.is_ordered else "parallel"
        if not self.is_ordered and self.lessees_max is not None:
            mode = f"parallel at {self.lessees_max + 1} workers" if self.lessees_max else "at home"
        return f"x{span(self.partitions_min, self.partitions_max)}, {mode}"


class Picture:
    """All boxes and arrows of a flow, in an order in which senders precede receivers and chains stay together.

    Every box before the one that takes errors sends errors to it; there are no arrows for that.
    """

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        plan = _unopened_plan(flow, least=False)
        smallest = {stage.name: stage.partitions for stage in _unopened_plan(flow, least=True).stages}
        self._nodes = {node.name: node for node in plan.nodes}
        self._after_errors: set[Node] = set()
        for node in plan.nodes:
            if node is flow.errors_node or any(upstream.node in self._after_errors for upstream in node.inputs):
                self._after_errors.add(node)
        self._stage_at = {stage.addresses[0]: stage for stage in plan.stages}
        self.arrows: list[Arrow] = []
        boxes: list[Box] = []
        for stage in plan.stages:
            box = self._box(stage, smallest[stage.name])
            self._add_ways(box, stage)
            boxes.append(box)
        self.boxes = self._in_reading_order(boxes)

    @property
    def title(self) -> str:
        """The flow's name, its size and what it promises."""
        actors = span(sum(box.partitions_min for box in self.boxes), sum(box.partitions_max for box in self.boxes))
        parts = [f"{len(self.boxes)} stages", f"{actors} actors"]
        if self.flow.slo is not None:
            parts.append(objective(self.flow.slo))
        return f"{self.flow.name}: {', '.join(parts)}"

    def arrows_from(self, box: Box) -> list[Arrow]:
        return [arrow for arrow in self.arrows if arrow.sender == box.name]

    # --- boxes ---------------------------------------------------------------------------------------------------------

    def _box(self, stage: Stage, partitions_min: int) -> Box:
        node = self._nodes[stage.name]
        shape: Shape = "operator"
        description = stage.operator.describe()
        if isinstance(node, SourceNode):
            shape, description = "source", _described_source(node.source)
        elif isinstance(stage.operator, SinkRows):
            shape = "sink"
        return Box(
            stage.name,
            shape,
            one_line(description),
            partitions_min,
            stage.partitions,
            stage.is_ordered,
            stage.lessees_max,
            takes_errors=node is self.flow.errors_node,
            is_after_errors=node in self._after_errors,
        )

    # --- arrows --------------------------------------------------------------------------------------------------------

    def _add_ways(self, box: Box, stage: Stage) -> None:
        """Follow a stage's outputs through its fused steps to the edges."""
        branches = stage.outlets.get(MAIN, [])
        if branches and isinstance(branches[0], StepBranch) and branches[0].step.name == stage.name:
            branches = branches[0].branches  # the step that the stage is named after is described already
        edges = list(_steps_and_edges(branches, box.steps))
        edges += [_FoundEdge(edge, None, LATE) for edge in stage.outlets.get(LATE, []) if isinstance(edge, Edge)]
        is_forked = len({found.after.name if found.after else "" for found in edges if found.output == MAIN}) > 1
        for found in edges:
            after = f"after {found.after.name}: " if is_forked and found.after else ""
            receiver = self._receiver(found.edge)
            if found.output == LATE:
                self.arrows.append(Arrow(stage.name, receiver, f"late for {stage.name}", is_side_output=True))
                continue
            self.arrows.append(Arrow(stage.name, receiver, f"{after}{self._side(found.edge)}{_exchange(found.edge)}"))
            for late in found.edge.late:
                if isinstance(late, Edge):
                    arrow = Arrow(stage.name, self._receiver(late), f"late for {receiver}", is_side_output=True)
                    self.arrows.append(arrow)

    def _receiver(self, edge: Edge) -> str:
        return self._stage_at[edge.targets[0]].name

    def _side(self, edge: Edge) -> str:
        """Which side of a join an edge leads to."""
        node = self._nodes[self._receiver(edge)]
        if len(node.inputs) != 2 or isinstance(node.work, PassThrough | Step):
            return ""
        return ("left, ", "right, ")[edge.port]

    # --- order ---------------------------------------------------------------------------------------------------------

    def _in_reading_order(self, boxes: list[Box]) -> list[Box]:
        order: list[Box] = []
        waiting = sorted(boxes, key=lambda box: box.is_after_errors)  # keeps the plan's order otherwise
        while waiting:
            is_errors_turn = waiting[0].is_after_errors
            unseen = {box.name for box in waiting}
            blocked = {arrow.receiver for arrow in self.arrows if arrow.sender in unseen}
            ready = [box for box in waiting if box.name not in blocked and box.is_after_errors == is_errors_turn]
            following = (
                [arrow.receiver for arrow in self.arrows_from(order[-1]) if not arrow.is_side_output] if order else []
            )
            chosen = next((box for box in ready if box.name in following), ready[0])
            waiting.remove(chosen)
            order.append(chosen)
        return order


def objective(slo: SLO) -> str:
    """What is promised, in a few words."""
    latency = [] if slo.latency_ms is None else [f"latency {format_milliseconds(slo.latency_ms)}"]
    throughput = [] if slo.throughput_per_s is None else [f"{slo.throughput_per_s:,.10g} rows/s"]
    return f"{' and '.join(latency + throughput)} for {100 * slo.target:.10g} % of rows"


def one_line(text: str) -> str:
    """Text of a user's own making: on one line, not endless, and without characters that do something to a terminal."""
    line = " ".join(text.split())
    line = line if len(line) <= _TEXT_MAX else f"{line[: _TEXT_MAX - 1]}…"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


def span(least: int, most: int) -> str:
    return str(most) if least == most else f"{least} to {most}"


class _FoundEdge(NamedTuple):
    edge: Edge
    after: Step | None  # the last step before it
    output: str = MAIN


def _steps_and_edges(
    branches: Sequence[Branch], lines: list[str], after: Step | None = None, depth: int = 0
) -> Iterator[_FoundEdge]:
    """All edges of a tree of steps. ``lines`` gets the steps: one line each, but where ways part, one line for each way."""
    depth += len(branches) > 1
    for branch in branches:
        if isinstance(branch, StepBranch):
            step = one_line(_described_step(branch.step))
            if depth and len(branches) == 1:
                lines[-1] += f" → {step}"
            else:
                lines.append("↳ " * depth + step)
            yield from _steps_and_edges(branch.branches, lines, branch.step, depth)
        elif isinstance(branch, Edge):
            yield _FoundEdge(branch, after)


def _described_step(step: Step) -> str:
    """The name is what errors are reported under, so it is told unless it says nothing new."""
    description = step.describe()
    return description if description.split(" ")[0] == step.name else f"{step.name}: {description}"


def _described_source(source: Source) -> str:
    parts = [f"source {source.name}"]
    if source.time is not None:
        parts.append(f"time {source.time}")
    if source.out_of_orderness_ms:
        parts.append(f"up to {format_milliseconds(source.out_of_orderness_ms)} out of order")
    return ", ".join(parts)


def _exchange(edge: Edge) -> str:
    """How rows find their partition."""
    if isinstance(edge.exchange, Onward):
        return "onward"
    if isinstance(edge.exchange, ByKey) and edge.exchange.keys:
        return one_line(f"by {', '.join(edge.exchange.keys)}")
    return "all to one"


# --- sources that are not opened -----------------------------------------------------------------------------------------


def _unopened_plan(flow: Dataflow, *, least: bool) -> Plan:
    """The plan with as many splits as were asked for, or with the least that a source may give: it decides when opened."""
    return Plan(
        flow, sources={node.name: _Unopened(node.source, least) for node in flow.nodes if isinstance(node, SourceNode)}
    )


class _Unopened(Source):
    """Stands in for a source that must not be touched."""

    def __init__(self, source: Source, least: bool) -> None:
        super().__init__(source.schema, name=source.name, is_bounded=source.is_bounded, time=source.time)
        self._least = least

    def splits(self, wanted: int) -> Sequence[Split]:
        return [_NoRows() for _ in range(1 if self._least else wanted)]


class _NoRows(Split):
    ended = True

    def read(self, rows_max: int) -> SourceBatch | None:  # noqa: ARG002  # there is nothing to read
        return None

    def close(self) -> None:
        pass
