"""Testing a flow: with rows that are written down, and under chaos, where it is spread over workers at random.

``pytest examples/test_taxi_rides.py`` runs the tests. ``python examples/test_taxi_rides.py`` prints results, and what chaos
says of a flow that is wrong, because the average of two averages is not that of all. Neither needs Spark:

    {'zone': 'airport', 'rides': 2, 'cents': 5000}
    {'zone': 'harbour', 'rides': 1, 'cents': 900}
    AssertionError: the sink 'to_memory' of 'fares' gets other rows when the flow is spread over workers (seed 0): ...
"""

from typing import Any

import dirigo as dg
from dirigo.testing import assert_parallel_equals_sequential, run

RIDES = [("airport", 3_100), ("harbour", 900), ("airport", 1_900)]
MANY_RIDES = [(f"zone {number % 7}", 500 + 37 * number % 2_000) for number in range(300)]


def build() -> dg.Dataflow:
    """Rides and fares of each zone."""
    flow = dg.Dataflow("fares")
    rides = flow.source(dg.from_iterable(RIDES, {"zone": str, "cents": int}, name="rides"))
    rides.key_by("zone").aggregate(rides=dg.count(), cents=dg.sum("cents")).sink(dg.to_memory())
    return flow


def build_wrong() -> dg.Dataflow:
    """The average fare of each zone, or so somebody thought."""
    flow = dg.Dataflow("fares")
    rides = flow.source(dg.from_iterable(RIDES, {"zone": str, "cents": int}, name="rides"))
    rides.key_by("zone").reduce(averaged).sink(dg.to_memory())
    return flow


def averaged(one: dg.Row, other: dg.Row) -> dict[str, Any]:
    return {"zone": one.zone, "cents": (one.cents + other.cents) // 2}


def test_rides_are_counted_by_zone() -> None:
    assert run(build(), [("harbour", 700), ("harbour", 800)]).rows() == [{"zone": "harbour", "rides": 2, "cents": 1500}]


def test_the_results_are_the_same_however_the_flow_is_spread() -> None:
    assert_parallel_equals_sequential(build(), MANY_RIDES)


flow = build()

if __name__ == "__main__":
    for row in dg.run(flow).rows():
        print(row)
    test_the_results_are_the_same_however_the_flow_is_spread()
    try:
        assert_parallel_equals_sequential(build_wrong(), MANY_RIDES)
    except AssertionError as error:
        print(f"AssertionError: {str(error).splitlines()[0]}")
