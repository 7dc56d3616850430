"""A flow run here and now, with its own sinks: what ``dg.run`` does."""

from __future__ import annotations

from dirigo.errors import DirigoError
from dirigo.flow.api.dataflow import Dataflow
from dirigo.testing.simulated_flow import SimulatedFlow
from dirigo.testing.simulation import Simulation
from dirigo.testing.strategies import SimulatedStrategy


def run(flow: Dataflow, *, strategy: SimulatedStrategy | None = None) -> SimulatedFlow:
    """Run a flow in this process until its input has ended, without Spark: for small inputs, notebooks and first steps.

    Sinks write where they say; ``rows()`` and ``table()`` of what is returned have the rows of ``to_memory`` sinks. Time is
    virtual: a source that keeps to the clock does not wait. On a cluster, the same flow runs with ``dg.Cluster`` or
    ``dg.connect``.
    """
    if not isinstance(flow, Dataflow):
        raise DirigoError(
            f"dg.run takes one flow, a dg.Dataflow, not {type(flow).__name__}; run several with dirigo.testing.run([...])."
        )
    return Simulation(flow, strategy=strategy, writes=True).finish()[flow.name]
