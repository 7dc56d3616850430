"""Every operator that keeps something goes on from snapshots as if nothing had happened.

A few seeds of each run with the tests; a hundred of each with ``make acceptance`` (the marker ``acceptance``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from dirigo import Dataflow
from dirigo.testing import Recoveries, check_recovery
from flow.recovery.flows import (
    CLOCK_TIMERS,
    CLOCK_WINDOWS,
    FUNCTIONS,
    FUNCTIONS_OF_TIME,
    LATE,
    OPERATORS,
    Rows,
    flow_of,
    flow_of_two,
    flow_with_late_rows,
    rows_of,
)

SEEDS, MORE_SEEDS = range(4), range(1_000, 1_100)
STRATEGIES = ["chaos", "reject_send", "chaos", "direct_send"]
ROWS_PER_READ = 8


def rows_by_key(rows: Rows) -> Any:
    """In windows of the clock: what falls into which depends on the clock, but each row is in three of them."""
    counts: Counter[int] = Counter()
    for row in rows:
        counts[row["key"]] += row["rows"]
    return counts


def fired(rows: Rows) -> Any:
    """Which timers have fired, and how many that was for those who counted."""
    return sorted(row["said"] for row in rows if row["said"].startswith("fired")), sum(
        int(row["said"].split()[-1]) for row in rows if row["said"].startswith("in all")
    )


Case = tuple[Callable[[], Dataflow], dict[str, Any]]
_FIXED: dict[str, Any] = {"rows_per_read": ROWS_PER_READ}
CASES: dict[str, Case] = {
    **{name: (partial(flow_of, build), {}) for name, build in (OPERATORS | FUNCTIONS).items()},
    **{name: (partial(flow_of, build), _FIXED) for name, build in FUNCTIONS_OF_TIME.items()},
    **{f"late {name}": (partial(flow_with_late_rows, build), _FIXED) for name, build in LATE.items()},
}
CASES |= {
    "clock windows": (lambda: flow_of(CLOCK_WINDOWS), {"compared": rows_by_key}),
    "clock timers": (lambda: flow_of(CLOCK_TIMERS, [*rows_of(), 10.0]), {"compared": fired}),
    "a source that ends early": (lambda: flow_of_two(rows_of(), rows_of(1)[:12]), {}),
    "an idle source": (
        lambda: flow_of_two(rows_of()[:80], [*rows_of(1)[:12], 3.0, {"at": 99_000, "key": 1, "n": 1}], idle_after="200ms"),
        {"compared": lambda rows: sorted(row["rows"] for row in rows if row["key"] == 1)[-1:]},
    ),
}


def check(name: str, seeds: Iterable[int], **options: Any) -> Recoveries:
    make, case_options = CASES[name]
    return check_recovery(make(), seeds=seeds, **case_options, **options)


@pytest.mark.parametrize("name", CASES)
def test_it_recovers(name: str) -> None:
    recoveries = check(name, SEEDS, strategies=STRATEGIES)
    assert recoveries["from a snapshot"] >= len(SEEDS) // 2


@pytest.mark.acceptance
@pytest.mark.parametrize("name", CASES)
def test_it_recovers_at_many_moments(name: str) -> None:
    recoveries = check(name, MORE_SEEDS, strategies=STRATEGIES)
    assert recoveries["from a snapshot"] > len(MORE_SEEDS) // 4  # where SYNC_ONEs are under way, most snapshots give way
