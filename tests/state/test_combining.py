"""What the ready-made combine functions compute, with their identities."""

from dirigo.state import add, maximum, merge_average, minimum, union


def test_add() -> None:
    assert add(2, 3) == 5
    assert add(0, 3) == 3


def test_maximum_and_minimum_take_none_for_nothing_seen() -> None:
    assert (maximum(2, 3), maximum(3, 2)) == (3, 3)
    assert (minimum(2, 3), minimum(3, 2)) == (2, 2)
    assert (maximum(None, -1), maximum(-1, None), maximum(None, None)) == (-1, -1, None)
    assert (minimum(None, 1), minimum(1, None), minimum(None, None)) == (1, 1, None)


def test_union() -> None:
    assert union(frozenset({1}), frozenset({2})) == {1, 2}
    assert union(frozenset(), frozenset({2})) == {2}


def test_merge_average_weighs_by_count() -> None:
    total, count = merge_average((10.0, 4), (2.0, 2))
    assert total / count == 2.0
    assert merge_average((0.0, 0), (2.0, 2)) == (2.0, 2)
