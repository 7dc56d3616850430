"""Calibration: from what a run came to, which rate is next, what is told, and which shares sources have."""

from __future__ import annotations

from typing import Any

import pytest

import dirigo as dg
from dirigo.calibration import Calibration, Measurement
from dirigo.calibration.inputs import shares_of, sources_of
from dirigo.calibration.measurement import adjusted_rate, are_slow, notes_on
from dirigo.flow.errors import FlowError
from dirigo.flow.sources.pushed import PushedSource
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.tables import GeneratedTables

LATENCY = {"p50": 5.0, "p95": 18.0, "p99": 20.4, "max": 30.0}


def came(**other: Any) -> Measurement:
    """Ten seconds on two workers, half busy with 1,000 rows a second."""
    usual: dict[str, Any] = {
        "step": "half",
        "rate_wanted": 1_000.0,
        "workers": 2,
        "seconds": 10.0,
        "rows": 10_000,
        "busy_s": 10.0,
        "results": 5_000,
        "latency_ms": LATENCY,
        "is_short": False,
        "is_full": False,
    }
    return Measurement(**(usual | other))


def probe(**other: Any) -> Measurement:
    return came(**({"step": "probe", "rate_wanted": None, "busy_s": 20.0, "rows": 20_000, "is_full": True} | other))


# --- rates -----------------------------------------------------------------------------------------------------------------


def test_the_cost_of_a_row_gives_the_rate_of_half_utilisation() -> None:
    assert probe().utilisation == 1.0
    assert probe().half_rate == 1_000.0
    assert came(busy_s=4.0).half_rate == pytest.approx(2_500.0)


def test_more_than_came_with_full_queues_is_not_asked_for() -> None:
    idle = probe(busy_s=12.0)  # by the cost of a row there would be time for 1,667 rows a second
    assert idle.half_rate == 1_000.0
    assert adjusted_rate(idle, came(busy_s=4.0)) == 1_000.0


def test_slow_sources_say_nothing_of_the_workers() -> None:
    slow = probe(busy_s=2.0, is_full=False)
    assert slow.half_rate == pytest.approx(10_000.0)
    assert are_slow(came(rate_wanted=10_000.0, rows=20_000, busy_s=2.0))
    assert not are_slow(came(rate_wanted=10_000.0, rows=20_000, busy_s=2.0, is_full=True))


def test_workers_that_are_too_busy_get_less_and_idle_ones_more() -> None:
    assert adjusted_rate(probe(), came(busy_s=16.0)) < 1_000 * 0.5 / 0.8
    assert adjusted_rate(probe(), came(busy_s=20.0)) == 250.0  # who knows how many of those rows were worked on
    assert adjusted_rate(probe(rows=10**6), came(busy_s=5.0)) == pytest.approx(2_000.0)


# --- what is told ----------------------------------------------------------------------------------------------------------


def test_the_objective_is_twice_the_tail() -> None:
    found = Calibration("orders", [probe(), came()], came())
    assert found.objective_ms == 41
    figures = found.figures()
    assert figures["rows_per_second"] == 1_000.0
    assert figures["utilisation"] == 0.5
    assert figures["latency_ms"] == LATENCY
    assert [step["step"] for step in figures["steps"]] == ["probe", "half"]


@pytest.mark.parametrize(
    ("before", "chosen", "sentences"),
    [
        (probe(), came(), []),
        (probe(), came(is_short=True, seconds=0.3), ["the sources ended after 0.3 s, which is too short to tell"]),
        (probe(is_short=True, seconds=0.3), came(), ["the sources ended after 0.3 s of the probe"]),
        (probe(), came(results=12), ["only 12 results came"]),
        (probe(), came(busy_s=16.0), ["the workers were 80% busy and not half of the time"]),
        (probe(), came(is_full=True), ["queues filled up at 1,000 rows/s"]),
        (
            probe(busy_s=11.0),
            came(busy_s=5.0),
            ["more than 2,000 rows/s could not be coped with"],
        ),
        (probe(), came(rate_wanted=9_000.0, busy_s=1.0), ["the sources give no more than 1,000 rows/s"]),
    ],
)
def test_what_makes_the_figure_doubtful_is_told(before: Measurement, chosen: Measurement, sentences: list[str]) -> None:
    told = notes_on(before, chosen)
    assert len(told) == len(sentences)
    assert all(sentence in note for sentence, note in zip(sentences, told, strict=True))


# --- sources ---------------------------------------------------------------------------------------------------------------


def test_sources_have_the_shares_that_they_have_in_event_time() -> None:
    flow = dg.Dataflow("q8", splits=2)
    QUERIES["q8"].function(flow, GeneratedTables(10**12)).sink(dg.to_nothing())
    assert shares_of(flow) == {"persons": pytest.approx(0.25, abs=0.02), "auctions": pytest.approx(0.75, abs=0.02)}


def test_a_source_that_cannot_be_read_twice_is_not_read_here() -> None:
    flow = dg.Dataflow("joined")
    left = flow.source(dg.from_socket("127.0.0.1", 9, name="left"))
    right = flow.source(dg.from_iterable([{"line": "a"}], name="right"))
    left.union(right).sink(dg.to_nothing())
    assert shares_of(flow) == {"left": 0.5, "right": 0.5}


def test_whatever_holds_rows_back_is_taken_away() -> None:
    source = dg.from_iterable([{"n": 1}], time="n", name="rows")
    flow = dg.Dataflow("held")
    flow.source(dg.shaped(dg.paced(source), dg.loads.constant(5))).sink(dg.to_nothing())
    assert sources_of(flow) == {"rows": source}


def test_rows_that_others_push_have_no_rate_of_ours() -> None:
    flow = dg.Dataflow("pushed")
    flow.source(PushedSource({"n": int}, name="df")).sink(dg.to_nothing())
    with pytest.raises(FlowError, match="rows of source 'df' are pushed by others, who set the rate"):
        sources_of(flow)
