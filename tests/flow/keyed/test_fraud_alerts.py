"""The fraud detector: exactly plain Python's alerts, in sequence and under chaos; and no alerts at all without keys."""

from __future__ import annotations

import ast
import runpy
from typing import Any

import pytest

import dirigo as dg
from dirigo.testing import run
from flow.flows import unordered
from flow.keyed.fraud import _FILE, alerts_in_plain_python, example


def test_it_is_exact_over_many_rows_and_forgets_who_is_quiet() -> None:
    rows = example().payments(100_000)
    expected = alerts_in_plain_python(rows)
    assert len(expected) > 300
    done = run(example().build(rows))
    assert unordered(done.rows()) == unordered(expected)
    assert done.state("fraud") == {}  # every timer has fired


@pytest.mark.parametrize("seed", range(20))
def test_it_is_exact_under_chaos(seed: int) -> None:
    rows = example().payments(3_000, users=20, seed=seed)
    expected = alerts_in_plain_python(rows)
    assert len(expected) > 20
    assert any(alert["user"] == "user 0" for alert in expected)  # who pays as often as several others
    done = run(example().build(rows), workers=3, seed=seed, chaos=True, rows_max=100)
    assert unordered(done.rows()) == unordered(expected)


def test_forgotten_keys_are_an_error() -> None:
    flow = dg.Dataflow("fraud")
    paid = flow.source(dg.from_iterable(example().payments(10), {"user": str, "at": int, "amount": int}, time="at"))
    with pytest.raises(dg.FlowError) as refused:
        paid.process(example().Fraud, {"user": str, "at": int, "total": int})
    assert str(refused.value) == (
        "process: the states of Fraud belong to keys, and its rows have none; call key_by(...) before process, or set "
        '`scope = "partition"` in Fraud if one state for all rows of a partition is meant.'
    )


def test_the_function_has_fifteen_lines_at_most() -> None:
    (function,) = (node for node in ast.parse(_FILE.read_text()).body if isinstance(node, ast.ClassDef))
    assert function.end_lineno is not None
    assert function.end_lineno - function.lineno + 1 <= 15


def test_the_example_runs(capsys: Any) -> None:
    runpy.run_path(str(_FILE), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{len(alerts_in_plain_python(example().payments(5_000)))} alerts, the first of them:"
    assert len(printed) == 4
