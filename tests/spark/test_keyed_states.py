"""States of keys on workers that Spark hosts: the fraud detector finds what plain Python does."""

from __future__ import annotations

from typing import Any

import pytest

import dirigo as dg
from flow.flows import unordered
from flow.keyed.fraud import alerts_in_plain_python, example

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("strategy", ["fifo", "reject_send_random"])
def test_the_fraud_detector_is_exact(classic_session: Any, strategy: str) -> None:
    rows = example().payments(100_000)
    expected = alerts_in_plain_python(rows)
    out = dg.to_memory()
    flow = dg.Dataflow(f"fraud-{strategy.replace('_', '-')}")
    paid = flow.source(dg.from_iterable(rows, {"user": str, "at": int, "amount": int}, time="at"))
    paid.key_by("user").process(example().Fraud, {"user": str, "at": int, "total": int}).sink(out)
    with dg.Cluster(workers=3, spark=classic_session) as cluster:
        cluster.run(flow, strategy=strategy)
    assert unordered(out.rows) == unordered(expected)
