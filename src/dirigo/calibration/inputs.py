"""The sources of a flow that is calibrated: what holds them back, which share of all rows each has, and a pace for them."""

from __future__ import annotations

import time

from dirigo.flow.api.dataflow import Dataflow, SourceNode, live_nodes
from dirigo.flow.errors import FlowError
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.sources import load_shapes as loads
from dirigo.flow.sources import shaped
from dirigo.flow.sources.generator import GeneratorSource
from dirigo.flow.sources.held_back import HeldBackSource
from dirigo.flow.sources.pushed import PushedSource
from dirigo.flow.sources.source import Source

_SAMPLE_ROWS, _SAMPLE_AT_ONCE, _SAMPLE_S = 50_000, 16, 2.0


def sources_of(flow: Dataflow) -> dict[str, Source]:
    """Its sources, by the names of their operators, without whatever holds their rows back."""
    found: dict[str, Source] = {}
    for node in live_nodes(flow):
        if isinstance(node, SourceNode):
            source = node.source
            while isinstance(source, HeldBackSource):
                source = source.source
            if isinstance(source, PushedSource):
                raise FlowError(
                    f"rows of source '{node.name}' are pushed by others, who set the rate; to calibrate the flow, give it a "
                    "source that is read, such as from_parquet() or from_generator()."
                )
            found[node.name] = source
    return found


def shares_of(flow: Dataflow) -> dict[str, float]:
    """Which share of all rows each source has, so that they go through event time together; equal ones if it is unknown."""
    nodes = [node for node in live_nodes(flow) if isinstance(node, SourceNode)]
    equal = {node.name: 1 / len(nodes) for node in nodes}
    if len(nodes) == 1 or not all(_can_be_read_here(node.source) for node in nodes):
        return equal
    readers = BoundJob(flow).readers
    active = list(readers)
    until = time.monotonic() + _SAMPLE_S
    try:
        while active and sum(reader.rows for reader in readers) < _SAMPLE_ROWS and time.monotonic() < until:
            behind = min(active, key=lambda reader: (reader.newest_ms, reader.rows))
            behind.read(_SAMPLE_AT_ONCE, time.time())
            if behind.has_ended:
                active.remove(behind)
    finally:
        for reader in readers:
            reader.split.close()
    rows = {node.name: sum(each.rows for each in readers if each.source is node.source) for node in nodes}
    total = sum(rows.values())
    return {name: count / total for name, count in rows.items()} if total else equal


def _can_be_read_here(source: Source) -> bool:
    """Reading some rows takes them from nobody: what has an end, or is made, can be read again."""
    return source.is_bounded or isinstance(source, GeneratorSource)


def at_constant_rate(source: Source, rate: float) -> Source:
    return shaped(source, loads.constant(rate)) if rate > 0 else source  # one that has no rows needs no pace
