"""Operators give the same results under chaos on three workers as on one worker without any."""

from __future__ import annotations

from random import Random

import pytest

import dirigo as dg
from dirigo.testing import run
from flow.flows import TS_SCHEMA, event, run_inline, unordered
from flow.operators.builds import BUILDS


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", BUILDS)
def test_chaos_changes_nothing(name: str, seed: int) -> None:
    rng = Random(seed)
    rows = [event(rng.choice("abc"), number, number + rng.randrange(3)) for number in range(50)]
    outcomes = []
    for chaos in (False, True):
        flow = dg.Dataflow("chaos", watermark_every="1ms", on_error="side_output", partitions=2)
        out, errors = dg.to_memory(), dg.to_memory()
        source = dg.from_iterable(rows, TS_SCHEMA, time="ts", out_of_orderness="3ms")
        BUILDS[name](flow.source(source)).sink(out)
        flow.errors.sink(errors)
        if chaos:
            run(flow, workers=3, chaos=True, seed=seed, rows_max=3, writes=True)
        else:
            run_inline(flow, 3)
        outcomes.append((unordered(out.rows), unordered(errors.rows)))
    assert outcomes[0][0]
    assert outcomes[1] == outcomes[0]
