"""What messages cost: the two parts are told apart, and nothing that happens once changes much."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.kernel import CriticalRun, Data, Directory, Granularity, Lane, Worker, actor_address
from dirigo.scheduling import Fifo
from dirigo.scheduling.costs import Cost, Costs

COUNT = actor_address("red", "count", 0)


def learned(*measurements: tuple[int, float]) -> Cost:
    cost = Cost()
    for rows, seconds in measurements:
        cost.learn(rows, seconds)
    return cost


def expected(cost: Cost, rows: int) -> float:
    return cost.fixed_s + cost.row_s * rows


def context() -> Worker:
    worker = Worker(0, Directory(), Fifo())
    worker.measure = len
    return worker


def message(to: str, rows: int) -> Data:
    return Data(to, 0, "red/source/0", 0, Lane.INPUT, 1, 0, [0] * rows)


def critical(to: str) -> CriticalRun:
    return CriticalRun(to, 0, ((to, 0, None),), Granularity.CHANNEL, 0, False)


# --- one function ------------------------------------------------------------------------------------------------------


@given(st.floats(0.0, 0.01), st.floats(0.0, 0.0001), st.integers(0, 1000))
def test_a_fixed_part_and_a_part_per_row_are_told_apart(fixed_s: float, row_s: float, seed: int) -> None:
    rng = Random(seed)
    sizes = [rng.randrange(1, 5_000) for _ in range(100)]
    cost = learned(*((rows, fixed_s + row_s * rows) for rows in sizes))
    for rows in (1, 100, 10_000):
        assert expected(cost, rows) == pytest.approx(fixed_s + row_s * rows, rel=0.001, abs=1e-7)


def test_noise_averages_out() -> None:
    rng = Random(1)
    sizes = [rng.randrange(1, 2_000) for _ in range(400)]
    cost = learned(*((rows, (0.002 + 0.000_01 * rows) * rng.uniform(0.8, 1.2)) for rows in sizes))
    for rows in (100, 1_000, 2_000):
        assert expected(cost, rows) == pytest.approx(0.002 + 0.000_01 * rows, rel=0.25)


def test_equal_batches_are_taken_to_cost_by_row() -> None:
    cost = learned(*[(100, 0.01)] * 50)
    assert (cost.fixed_s, cost.row_s) == pytest.approx((0.0, 0.0001))
    assert expected(cost, 100) == pytest.approx(0.01)
    assert expected(cost, 200) == pytest.approx(0.02)


def test_one_other_size_is_enough_to_tell_them_apart() -> None:
    cost = learned(*[(100, 0.011)] * 50, (10, 0.002))
    assert (cost.fixed_s, cost.row_s) == pytest.approx((0.001, 0.0001))


def test_the_first_measurement_counts_at_once() -> None:
    assert expected(learned((10, 0.5)), 10) == pytest.approx(0.5)


def test_a_machine_that_paused_once_is_not_a_slow_function() -> None:
    usual = [(100, 0.001)] * 50
    cost = learned(*usual, (100, 30.0))
    assert expected(cost, 100) < 0.0015
    for each in usual * 4:
        cost.learn(*each)
    assert expected(cost, 100) == pytest.approx(0.001, rel=0.05)


@pytest.mark.parametrize("factor", [0.01, 0.1, 10.0, 100.0])
def test_the_past_fades(factor: float) -> None:
    cost = learned(*[(100, 0.01), (50, 0.005)] * 100)
    for _ in range(300):
        cost.learn(100, 0.01 * factor)
        cost.learn(50, 0.005 * factor)
    assert expected(cost, 100) == pytest.approx(0.01 * factor, rel=0.1)


def test_neither_part_is_ever_negative() -> None:
    for measurements in ([(1, 0.9), (100, 0.1)], [(10, 0.0), (100, 1.0), (1_000, 30.0)]):
        cost = learned(*measurements * 30)
        assert cost.fixed_s >= 0.0
        assert cost.row_s >= 0.0


def test_what_was_too_short_to_measure_at_first_is_measured_later() -> None:
    cost = learned(*[(1, 0.0)] * 20)
    assert expected(cost, 1) == 0.0
    for _ in range(200):
        cost.learn(1, 0.001)
    assert expected(cost, 1) == pytest.approx(0.001, rel=0.05)


def test_a_message_without_rows_is_not_free_just_because_all_others_were_alike() -> None:
    cost = learned(*[(100, 0.011)] * 50, *[(0, 0.001)] * 5)
    assert expected(cost, 0) == pytest.approx(0.001, rel=0.01)


# --- all functions of a worker -----------------------------------------------------------------------------------------


def test_actors_of_a_function_share_what_is_known_of_it() -> None:
    costs, worker = Costs(), context()
    costs.learn(worker, message(COUNT, 10), 0.1)
    assert costs.expected_s(worker, message(actor_address("red", "count", 7), 20)) == pytest.approx(0.2)
    assert costs.expected_s(worker, message(actor_address("red", "join", 0), 20)) == 0.0
    assert costs.expected_s(worker, message(actor_address("blue", "count", 0), 20)) == 0.0


def test_critical_messages_are_known_apart() -> None:
    costs, worker = Costs(), context()
    costs.learn(worker, message(COUNT, 10), 0.1)
    assert costs.expected_s(worker, critical(COUNT)) == 0.0
    costs.learn(worker, critical(COUNT), 2.0)
    assert costs.expected_s(worker, critical(COUNT)) == 2.0
    assert costs.expected_s(worker, message(COUNT, 10)) == pytest.approx(0.1)
    for _ in range(200):
        costs.learn(worker, critical(COUNT), 1.0)
    assert costs.expected_s(worker, critical(COUNT)) == pytest.approx(1.0, rel=0.01)


def test_a_guess_is_what_is_known_or_more_than_nothing() -> None:
    costs, worker = Costs(), context()
    assert costs.guessed_s(COUNT, 10) > 0.0
    costs.learn(worker, message(COUNT, 10), 0.1)
    assert costs.guessed_s(COUNT, 30) == pytest.approx(0.3)


def test_a_job_that_is_gone_is_forgotten_and_its_namesakes_are_not() -> None:
    costs, worker = Costs(), context()
    others = (actor_address("redder", "count", 0), actor_address("blue", "count", 0))
    for actor in (COUNT, *others):
        costs.learn(worker, message(actor, 10), 0.1)
    costs.forget_job("red")
    assert costs.expected_s(worker, message(COUNT, 10)) == 0.0
    assert [costs.expected_s(worker, message(actor, 10)) for actor in others] == [pytest.approx(0.1)] * 2
