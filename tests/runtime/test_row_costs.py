"""What a row costs over all workers, as those know it that read sources."""

import pytest

from dirigo.runtime.worker.row_costs import RowCosts


def executed(actor: str, rows: int, row_s: float, times: int = 100) -> RowCosts:
    costs = RowCosts()
    for _ in range(times):
        costs.learn(actor, rows, rows * row_s)
    return costs


def test_whoever_reads_a_source_learns_what_rows_cost_elsewhere() -> None:
    reading = executed("job/read/0", 8, 0.0001)
    assert reading.dearest_row_s() == pytest.approx(0.0001)
    reading.note(1, executed("job/work/1", 4, 0.005).news())
    reading.note(2, executed("job/work/2", 4, 0.005).news())
    assert reading.dearest_row_s() == pytest.approx(0.005)


def test_a_function_that_sees_few_rows_costs_a_row_that_comes_in_the_less() -> None:
    reading = executed("job/read/0", 10, 0.0001)
    reading.note(1, executed("job/rare/0", 1, 0.01).news())
    assert reading.dearest_row_s() == pytest.approx(0.001)


def test_the_newest_word_of_a_worker_replaces_its_last() -> None:
    reading = executed("job/read/0", 1, 0.0001)
    reading.note(1, (("job/work", 100, 0.5),))
    reading.note(1, (("job/work", 100, 0.005),))
    assert reading.dearest_row_s() == pytest.approx(0.005)


def test_only_news_is_told() -> None:
    costs = executed("job/work/0", 4, 0.005)
    ((function, rows, row_s),) = costs.news()
    assert (function, rows) == ("job/work", 400)
    assert row_s == pytest.approx(0.005)
    assert costs.news() == ()
    for _ in range(10):
        costs.learn("job/work/0", 4, 0.02)
    assert costs.news() == ()  # about as many rows, at the same cost
    for _ in range(100):
        costs.learn("job/work/0", 4, 0.04)
    ((_, rows, row_s),) = costs.news()
    assert rows == 840
    assert row_s == pytest.approx(0.009, rel=0.05)
