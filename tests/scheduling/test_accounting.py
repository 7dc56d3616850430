"""What a job was given: counts, how much of it was within the objective, and where the time of the rest went."""

import msgspec
import pytest

from dirigo.kernel import Data, Lane, Trail
from dirigo.scheduling.accounting import CAUSES, Account, Late, Satisfaction, bucket_of, percentiles, summed


def message(created: float, deadline: float) -> Data:
    return Data("job/a/0", 0, "job/s/0", 0, Lane.INPUT, 1, 0, "x", created, deadline)


def noted(*executions: tuple[float, Trail, int], deadline: float = 1.0) -> Account:
    """Executions that ended then, of messages that were created at 0."""
    account = Account()
    for now, trail, results in executions:
        account.note(message(0.0, deadline), now, trail, results)
    return account


def test_before_there_is_anything_nothing_is_said() -> None:
    assert Account().report() == Satisfaction()
    assert Account().report().results is None
    assert Late().shares() == {}


def test_messages_and_results_are_counted_apart() -> None:
    account = noted((0.5, (0.5, 0, 0, 0), 0), (0.5, (0.5, 0, 0, 0), 10), (2.0, (2, 0, 0, 0), 0))
    report = account.report()
    assert (account.messages, account.results) == (3, 10)
    assert (report.results, report.late_results) == (1.0, 0)
    assert report.messages == pytest.approx(2 / 3, abs=1e-6)
    assert report.late_messages == 1


def test_what_is_done_at_its_deadline_is_in_time() -> None:
    assert noted((1.0, (0, 0, 0, 1), 5)).report().late_results == 0
    assert noted((1.0001, (0, 0, 0, 1), 5)).report().late_results == 5


def test_what_has_no_deadline_is_never_late() -> None:
    assert noted((1e9, (0, 0, 1e9, 0), 1), deadline=float("inf")).report().results == 1.0


def test_results_are_rows_so_a_late_batch_counts_by_its_rows() -> None:
    report = noted((0.5, (0.5, 0, 0, 0), 90), (2.0, (2, 0, 0, 0), 10)).report()
    assert (report.results, report.late_results) == (0.9, 10)
    assert (report.messages, report.late_messages) == (0.5, 1)


def test_the_time_of_what_is_late_is_split_by_cause_and_the_rest_is_the_sources() -> None:
    report = noted((10.0, (1.0, 2.0, 3.0, 2.5), 1), (0.5, (0.5, 0, 0, 0), 1)).report()
    expected = {"source": 0.15, "hop": 0.1, "barrier": 0.2, "queue": 0.3, "executing": 0.25}
    assert report.why_results == report.why_messages == expected
    assert tuple(expected) == CAUSES


def test_causes_weigh_by_rows() -> None:
    report = noted((2.0, (2.0, 0, 0, 0), 3), (2.0, (0, 2.0, 0, 0), 1)).report()
    assert (report.why_results["hop"], report.why_results["barrier"]) == (0.75, 0.25)
    assert (report.why_messages["hop"], report.why_messages["barrier"]) == (0.5, 0.5)


def test_clocks_that_disagree_make_no_negative_time() -> None:
    report = noted((1.5, (2.0, 0, 0, 0), 1)).report()
    assert report.why_results == {"source": 0.0, "hop": 1.0, "barrier": 0.0, "queue": 0.0, "executing": 0.0}


def test_accounts_of_several_workers_add_up() -> None:
    one = noted((0.5, (0.5, 0, 0, 0), 3), (2.0, (1.0, 1.0, 0, 0), 1))
    other = noted((0.5, (0.5, 0, 0, 0), 2), (4.0, (0, 0, 4.0, 0), 2))
    both = noted((0.5, (0.5, 0, 0, 0), 3), (2.0, (1, 1, 0, 0), 1), (0.5, (0.5, 0, 0, 0), 2), (4.0, (0, 0, 4, 0), 2))
    assert summed([one, other]) == both
    assert summed([one, other]).report() == both.report()
    assert one.messages == 2  # what was added up stays as it was


def test_latencies_are_those_of_results() -> None:
    account = noted((0.5, (0.5, 0, 0, 0), 3), (0.25, (0.25, 0, 0, 0), 0))
    assert account.latencies == {bucket_of(0.5): 3}
    assert percentiles(account.latencies)["max"] == pytest.approx(500, rel=0.04)


def test_an_account_travels() -> None:
    account = noted((0.5, (0.5, 0, 0, 0), 3), (2.0, (1, 1, 0, 0), 1))
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(account), type=Account)
    assert decoded == account
    decoded.add(account)
    assert decoded.results == 8


def test_two_accounts_share_nothing() -> None:
    one = Account()
    one.note(message(0.0, 1.0), 2.0, (2.0, 0, 0, 0), 1)
    assert Account() == Account(0, 0, {}, Late(), Late())
