"""Finding out whether a flow means the same however it is spread: the check that catches a wrong combining function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dirigo.flow.api.dataflow import Dataflow
from dirigo.testing.simulation import Simulation, run

SEEDS = 20
_SHOWN_MOST = 3


def assert_parallel_equals_sequential(
    flow: Dataflow,
    rows: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
    *,
    seeds: int | Iterable[int] = SEEDS,
    workers: int = 3,
    batches: int = 40,
    float_digits: int | None = 12,
) -> None:
    """Run a flow once on one worker and then under chaos with many seeds; every sink must get the same rows each time.

    Chaos cuts the input into about ``batches`` messages and spreads them over ``workers`` at random. The order of rows does
    not matter, and floating-point numbers, whose sums depend on it, are compared to ``float_digits`` significant digits
    (None: exactly). A difference raises AssertionError with the seed, the rows, and the functions that ran elsewhere.
    """
    held = held_rows(rows)
    sequential = run(flow, held)
    expected = {sink: multiset(sequential.rows(sink), float_digits) for sink in sequential.sinks}
    read = max(sum(reader.rows for reader in sequential.job.readers), 1)
    spread = Counter[str]()
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        parallel = run(flow, held, workers=workers, seed=seed, chaos=True, rows_max=max(2 * read // batches, 1))
        spread.update(parallel.elsewhere)
        for sink, rows_expected in expected.items():
            rows_found = multiset(parallel.rows(sink), float_digits)
            if rows_found != rows_expected:
                raise AssertionError(_explained(flow, parallel, seed, sink, rows_expected, rows_found))
    if not spread and any(not spec.ordered for spec in sequential.job.specs()):
        raise AssertionError(
            f"nothing of '{flow.name}' ever ran at a second worker, so nothing was tested; give it more rows or more seeds."
        )


def held_rows(rows: Any) -> Any:
    """Scripts that can be read many times."""
    if rows is None:
        return None
    return {name: list(script) for name, script in rows.items()} if isinstance(rows, Mapping) else list(rows)


def multiset(rows: list[dict[str, Any]], float_digits: int | None) -> Counter[str]:
    return Counter(repr(row if float_digits is None else _rounded(row, float_digits)) for row in rows)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {name: _rounded(each, digits) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each, digits) for each in value]
    return value


def _explained(flow: Dataflow, run: Simulation, seed: int, sink: str, expected: Counter[str], found: Counter[str]) -> str:
    places = ", ".join(f"'{operator}'" for operator in sorted(run.elsewhere)) or "none"
    return (
        f"the sink '{sink}' of '{flow.name}' gets other rows when the flow is spread over workers (seed {seed}): "
        f"{explained(expected, found)}\n"
        f"  ran at several workers: {places}. Look there for a combining function that is not associative and commutative, "
        "for a default that changes what it is combined with, for a result that depends on the order of rows, or for rows "
        f"later than the source's out_of_orderness allows (dropped as late here: {run.late_rows_dropped or 'none'}); "
        "a function that must see its rows in order needs `ordered = True`."
    )


def explained(expected: Counter[str], found: Counter[str]) -> str:
    """How two results differ."""
    missing, extra = expected - found, found - expected
    return f"{missing.total()} missing, {extra.total()} too many.\n  missing:  {_some(missing)}\n  too many: {_some(extra)}"


def _some(rows: Counter[str]) -> str:
    shown = list(rows.elements())[:_SHOWN_MOST]
    more = f" and {rows.total() - len(shown)} more" if rows.total() > len(shown) else ""
    return (", ".join(shown) or "none") + more
