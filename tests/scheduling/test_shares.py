"""Shares of a worker's time: by weight, among those with something to do, with room for bursts."""

import pytest

from dirigo.scheduling.shares import BURST_S, Shares


def granted(
    shares: Shares, wants: dict[str, tuple[float, float]], begin: float, end: float, cost_s: float = 0.01
) -> dict[str, float]:
    """Let jobs, each with a weight, ask for so many seconds of work per second; the seconds that each was granted."""
    got = dict.fromkeys(wants, 0.0)
    asked = dict.fromkeys(wants, 0.0)
    steps = round((end - begin) / cost_s)
    for step in range(steps):
        now = begin + step * cost_s
        for job, (weight, per_s) in wants.items():
            while asked[job] < per_s * (step + 1) * cost_s:
                asked[job] += cost_s
                got[job] += cost_s * shares.take(job, weight, cost_s, now)
    return got


def test_a_job_that_is_alone_has_all_of_it() -> None:
    shares = Shares()
    assert granted(shares, {"alone": (1.0, 3.0)}, 0.0, 5.0) == {"alone": pytest.approx(15.0, abs=0.05)}
    assert not shares.has_too_much("alone", 5.0)


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_jobs_with_more_to_do_than_there_is_time_share_by_weight(weight: float) -> None:
    shares = Shares()
    got = granted(shares, {"light": (1.0, 2.0), "heavy": (weight, 2.0)}, 0.0, 20.0)
    assert got["light"] == pytest.approx(20.0 / (1 + weight) + BURST_S, abs=0.6)
    assert got["heavy"] == pytest.approx(20.0 * weight / (1 + weight) + BURST_S, abs=0.6)


def test_whoever_keeps_to_his_share_is_never_refused() -> None:
    shares = Shares()
    got = granted(shares, {"modest": (1.0, 0.4), "greedy": (1.0, 4.0)}, 0.0, 10.0)
    assert got["modest"] == pytest.approx(4.0, abs=0.05)
    assert not shares.has_too_much("modest", 10.0)
    assert shares.has_too_much("greedy", 10.0)


def test_a_burst_is_allowed_for() -> None:
    shares = Shares()
    shares.take("other", 1.0, 0.0, 0.0)
    within = [shares.take("burst", 1.0, BURST_S / 4, 0.0) for _ in range(10)]
    assert within == [True] * 4 + [False] * 6


def test_having_had_too_much_is_forgotten_after_a_while() -> None:
    shares = Shares()
    granted(shares, {"quiet": (1.0, 0.1), "once": (1.0, 4.0)}, 0.0, 2.0)
    assert shares.has_too_much("once", 2.0)
    granted(shares, {"quiet": (1.0, 0.1), "once": (1.0, 0.1)}, 2.0, 6.0)
    assert not shares.has_too_much("once", 6.0)


def test_a_job_that_is_gone_leaves_its_share_to_the_others() -> None:
    shares = Shares()
    granted(shares, {"left": (1.0, 2.0), "gone": (1.0, 2.0)}, 0.0, 3.0)
    shares.forget_job("gone")
    assert not shares.has_too_much("gone", 3.0)
    assert granted(shares, {"left": (1.0, 1.0)}, 4.0, 8.0)["left"] > 3.9
