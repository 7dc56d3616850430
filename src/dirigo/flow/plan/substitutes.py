"""A dataflow with other sources or sinks: the same graph, run on other rows, or with its results going elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from dirigo.flow.api.dataflow import Dataflow, SourceNode, StreamOutput
from dirigo.flow.errors import FlowError
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.sinks.sink import Sink
from dirigo.flow.sources.source import Source


def substituted(
    flow: Dataflow, *, sources: Mapping[str, Source] | None = None, sinks: Mapping[str, Sink] | None = None
) -> Dataflow:
    """A copy of a flow in which these sources and sinks, by the names of their operators, stand in for its own.

    A source has to have the columns and the event time of the one that it stands in for. The flow itself stays as it is.
    """
    sources, sinks = sources or {}, sinks or {}
    names = {node.name for node in flow.nodes if isinstance(node, SourceNode) or isinstance(node.work, SinkRows)}
    for name in (*sources, *sinks):
        if name not in names:
            raise FlowError(f"dataflow '{flow.name}' has no source or sink '{name}'; it has {', '.join(sorted(names))}.")
    copies = {node: copy(node) for node in flow.nodes}
    for node in copies.values():
        node.inputs = [StreamOutput(copies[upstream.node], upstream.name) for upstream in node.inputs]
        if isinstance(node, SourceNode) and node.name in sources:
            _check(node, sources[node.name])
            node.source = sources[node.name]
        elif isinstance(node.work, SinkRows) and node.name in sinks:
            node.work = SinkRows(node.name, node.work.schema, sinks[node.name])
    result = copy(flow)
    result.nodes = list(copies.values())
    result.emulated = {copies[node]: work for node, work in flow.emulated.items()}
    result.errors_node = None if flow.errors_node is None else copies[flow.errors_node]
    return result


def sink_names(flow: Dataflow) -> list[str]:
    return [node.name for node in flow.nodes if isinstance(node.work, SinkRows)]


def _check(node: SourceNode, source: Source) -> None:
    if not source.schema.equals(node.source.schema) or source.time != node.source.time:
        raise FlowError(f"'{source.name}' cannot stand in for '{node.name}': its columns or its event time are others.")
