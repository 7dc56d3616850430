"""A dataflow and a stream in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dirigo.flow.errors import FlowError
from dirigo.flow.notebook.graph import as_svg
from dirigo.flow.notebook.html import BAD, Markup, coloured, quiet, stacked, table, title
from dirigo.flow.plan.picture import objective

if TYPE_CHECKING:
    from dirigo.flow.api.dataflow import Dataflow
    from dirigo.flow.api.stream import Stream


def dataflow_html(flow: Dataflow) -> Markup:
    """Its name, its objective and its graph. One that is not complete yet says why, and what there is."""
    head = title(flow.name, "dataflow" if flow.slo is None else f"dataflow, {objective(flow.slo)}")
    try:
        return stacked(head, as_svg(flow))
    except FlowError as error:
        nodes = [(node.name, node.work.describe(), ", ".join(each.node.name for each in node.inputs)) for node in flow.nodes]
        return stacked(head, table(nodes, ("operator", "does", "reads")) if nodes else Markup(), coloured(error, BAD))


def stream_html(stream: Stream) -> Markup:
    """Its name and its columns."""
    time = stream.time
    columns = [
        (field.name, field.type, "event time" if time is not None and time.name == field.name else "")
        for field in stream.schema
    ]
    head = title(stream.name, f"stream of dataflow {stream.flow.name}")
    return stacked(head, table(columns, ("column", "type", "")) if columns else quiet("no columns"))
