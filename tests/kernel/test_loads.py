"""What workers know of each other's load."""

import pytest

from dirigo.kernel.worker_loads import ToldLoad, WorkerLoads


def test_a_load_that_was_told_is_taken_to_be_worked_off() -> None:
    loads = WorkerLoads()
    loads.note(1, (0.2, 0.5), now=10.0)
    assert loads.of(1, 10.1) == pytest.approx((0.1, 0.4))
    assert loads.of(1, 11.0) == (0.0, 0.0)


def test_what_is_worked_off_as_others_believe_is_no_news() -> None:
    told = ToldLoad()
    told.note((0.2, 0.5), now=10.0)
    assert not told.is_news((0.1, 0.4), 10.1)
    assert not told.is_news((0.0, 0.0), 11.0)


@pytest.mark.parametrize("load", [(0.2, 0.5), (0.0, 0.0), (0.1, 0.6), (0.14, 0.4)])
def test_what_others_would_not_expect_is_news(load: tuple[float, float]) -> None:
    told = ToldLoad()
    told.note((0.2, 0.5), now=10.0)
    assert told.is_news(load, 10.1)


def test_a_little_more_or_less_is_no_news() -> None:
    told = ToldLoad()
    assert not told.is_news((0.001, 0.002), 10.0)
    assert told.is_news((0.001, 0.003), 10.0)
    told.note((0.2, 0.4), now=10.0)
    assert not told.is_news((0.24, 0.31), 10.0)
