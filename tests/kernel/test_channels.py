"""A counted channel admits every id once, in whatever order the ids come."""

from itertools import permutations

import pytest

from dirigo.kernel.channel import Inbound


def test_ids_in_order_need_no_window() -> None:
    channel = Inbound()
    assert [channel.admit(seq) for seq in (1, 2, 3)] == [True, True, True]
    assert channel.arrived == 3
    assert channel.ahead is None


def test_an_id_that_overtook_waits_ahead_until_the_gap_is_filled() -> None:
    channel = Inbound()
    assert channel.admit(3)
    assert channel.admit(2)
    assert (channel.arrived, channel.ahead) == (0, {2, 3})
    assert channel.admit(1)
    assert (channel.arrived, channel.ahead) == (3, None)


def test_only_the_filled_part_of_a_gap_closes() -> None:
    channel = Inbound()
    for seq in (2, 4, 1):
        channel.admit(seq)
    assert (channel.arrived, channel.ahead) == (2, {4})


def test_a_duplicate_is_refused_whether_its_id_is_behind_or_ahead() -> None:
    channel = Inbound()
    assert [channel.admit(seq) for seq in (1, 1, 3, 3, 2, 3, 2, 1)] == [True, False, True, False, True, False, False, False]
    assert channel.arrived == 3


@pytest.mark.parametrize("order", list(permutations(range(1, 5))))
def test_any_order_ends_the_same_and_admits_each_id_once(order: tuple[int, ...]) -> None:
    channel = Inbound()
    assert [channel.admit(seq) for seq in order + order] == [True] * 4 + [False] * 4
    assert (channel.arrived, channel.ahead) == (4, None)


def test_admission_does_not_count_as_done() -> None:
    channel = Inbound()
    channel.admit(1)
    assert channel.done == 0
