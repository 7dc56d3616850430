"""Draws for many seeds at once equal those of java.util.Random, whose values here were printed by a Java 17 program."""

import numpy as np
import pytest

from dirigo.nexmark.java_random import JavaRandoms

BOUNDS = (2, 4, 5, 11, 26, 64, 111, 1010, 10_000, 1, 1 << 30, (1 << 30) + 1, 1_500_000_000, (1 << 31) - 1)
# Per seed: `nextInt() >>> 1` three times; `nextInt(bound)` for all bounds in turn; `nextDouble()` three times.
SEEDS = [0, 1, 2, 42, 999, 123456789, 1000000007, 1099511640121]
BITS_31 = [
    (1569741360, 1785505948, 516548029),
    (1569548985, 215764588, 880641847),
    (1570126108, 630021372, 1935844040),
    (1562431130, 117392763, 1467211248),
    (1526072359, 1936502791, 1561466231),
    (1426010965, 1639209600, 981296483),
    (404283000, 775339921, 2003633280),
    (1691324523, 1982912920, 1374442641),
]
INTS = [
    (1, 3, 4, 5, 13, 19, 62, 951, 8719, 0, 357790538, 542832677, 827187473, 1316484262),
    (1, 0, 2, 8, 12, 2, 98, 636, 9978, 0, 6568284, 327998473, 342691263, 2018345562),
    (1, 1, 0, 8, 17, 54, 102, 1009, 9847, 0, 1060235047, 972501086, 489965434, 1116586614),
    (1, 0, 3, 5, 0, 60, 11, 428, 5519, 0, 969988591, 969067502, 791955276, 819572292),
    (1, 3, 1, 8, 10, 24, 110, 855, 8261, 0, 87233812, 682892105, 1222483310, 2137458547),
    (1, 3, 3, 2, 2, 13, 0, 957, 3297, 0, 385991720, 1052992961, 1020854664, 34329982),
    (0, 1, 0, 6, 25, 41, 65, 463, 5251, 0, 369028974, 189050979, 813098483, 459098189),
    (1, 3, 1, 3, 13, 0, 92, 316, 5405, 0, 731375598, 385381086, 668638110, 24702358),
]
DOUBLES = [
    (0.730967787376657, 0.24053641567148587, 0.6374174253501083),
    (0.7308781907032909, 0.41008081149220166, 0.20771484130971707),
    (0.7311469360199058, 0.9014476240300544, 0.49682259343089075),
    (0.7275636800328681, 0.6832234717598454, 0.30871945533265976),
    (0.7106328293942568, 0.7271143712820883, 0.0949321147800023),
    (0.664038103272266, 0.45695178590520646, 0.39050647939140426),
    (0.1882589364207653, 0.9330144556021083, 0.8535220720262164),
    (0.7875843632722762, 0.6400247362780712, 0.07137259856357003),
]


def randoms() -> JavaRandoms:
    return JavaRandoms(np.array(SEEDS, np.int64))


def test_bits_are_those_of_java() -> None:
    drawn = randoms()
    assert [tuple(row) for row in np.stack([drawn.next(31) for _ in range(3)], axis=1).tolist()] == BITS_31


def test_fewer_bits_are_the_topmost_ones() -> None:
    assert (randoms().next(7) == randoms().next(31) >> 24).all()


def test_bounded_numbers_are_those_of_java_with_powers_of_two_and_redraws() -> None:
    drawn = randoms()  # about half of all draws below 2**30 + 1 and a third of those below 1.5e9 are rejected
    assert [tuple(row) for row in np.stack([drawn.next_int(bound) for bound in BOUNDS], axis=1).tolist()] == INTS


def test_bounds_may_differ_from_seed_to_seed() -> None:
    for shift in range(len(BOUNDS)):
        bounds = [BOUNDS[(row + shift) % len(BOUNDS)] for row in range(len(SEEDS))]
        single = randoms()
        together = single.next_int_below(np.array(bounds, np.int64))
        following = single.next(31)  # shows that redraws have moved each generator as far as alone
        for row, (seed, bound) in enumerate(zip(SEEDS, bounds, strict=True)):
            alone = JavaRandoms(np.array([seed], np.int64))
            assert (together[row], following[row]) == (alone.next_int(bound)[0], alone.next(31)[0])


def test_doubles_are_those_of_java() -> None:
    drawn = randoms()
    assert [tuple(row) for row in np.stack([drawn.next_double() for _ in range(3)], axis=1).tolist()] == DOUBLES


def test_some_generators_can_draw_while_the_others_stay() -> None:
    rows = np.array([1, 3])
    moved = randoms()
    some = moved.at(rows)
    assert [tuple(row) for row in np.stack([some.next(31) for _ in range(2)], axis=1).tolist()] == [
        BITS_31[1][:2],
        BITS_31[3][:2],
    ]
    moved.put(rows, some)
    expected = [bits[2 if row in (1, 3) else 0] for row, bits in enumerate(BITS_31)]
    assert moved.next(31).tolist() == expected


def test_no_seeds_give_no_numbers() -> None:
    nothing = JavaRandoms(np.zeros(0, np.int64))
    assert len(nothing.next_int(5)) == len(nothing.next_double()) == len(nothing.next_int_below(np.zeros(0, np.int64))) == 0


@pytest.mark.parametrize("bound", [0, -3, 1 << 31])
def test_bounds_that_java_does_not_have_are_refused(bound: int) -> None:
    with pytest.raises(ValueError, match="a bound is 1 to"):
        randoms().next_int(bound)
    with pytest.raises(ValueError, match="a bound is 1 to"):
        randoms().next_int_below(np.array([bound, *range(5, 12)], np.int64))


@pytest.mark.parametrize("bits", [0, 32])
def test_numbers_of_bits_that_one_draw_does_not_give_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="one draw gives"):
        randoms().next(bits)
