"""The clock of a worker while the time of day is set: it goes on, it never goes back, and it follows."""

from __future__ import annotations

import logging

import pytest

from dirigo.runtime.worker import clock as clocks
from dirigo.runtime.worker.clock import AHEAD_MOST_S, SLEW, WorkerClock

LOOK_EVERY_S = 0.02


class SystemClocks:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.day_s = 1_700_000_000.0
        self.monotonic_s = 5_000.0

    def time(self) -> float:
        return self.day_s

    def monotonic(self) -> float:
        return self.monotonic_s

    def pass_s(self, seconds: float) -> None:
        self.day_s += seconds
        self.monotonic_s += seconds


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SystemClocks:
    system = SystemClocks()
    monkeypatch.setattr(clocks, "time", system)
    return system


def followed(clock: WorkerClock, system: SystemClocks, seconds: float, every_s: float = LOOK_EVERY_S) -> float:
    """Let time pass, as a worker does; how far the clock went in it."""
    began_s = before_s = clock()
    for _ in range(round(seconds / every_s)):
        system.pass_s(every_s)
        now_s = clock()
        assert now_s > before_s
        clock.follow()
        assert now_s <= clock() < now_s + 1e-6 or clock() - now_s > AHEAD_MOST_S
        before_s = clock()
    return before_s - began_s


def test_it_is_the_time_of_day(system: SystemClocks) -> None:
    clock = WorkerClock()
    assert clock() == system.day_s
    assert followed(clock, system, 100.0) == pytest.approx(100.0)
    assert clock() == pytest.approx(system.day_s)


@pytest.mark.parametrize("step_s", [-60.0, 60.0, -3600.0, 599.0, -0.5])
def test_it_goes_on_when_the_time_of_day_is_set_and_follows_slowly(system: SystemClocks, step_s: float) -> None:
    clock = WorkerClock()
    followed(clock, system, 10.0)
    system.day_s += step_s
    assert followed(clock, system, 10.0) == pytest.approx(10.0, rel=SLEW * 1.01)
    followed(clock, system, abs(step_s) / SLEW, every_s=1.0)
    followed(clock, system, 2.0)
    assert clock() == pytest.approx(system.day_s, abs=0.01)
    assert followed(clock, system, 10.0) == pytest.approx(10.0, rel=0.01)


def test_a_time_of_day_that_is_far_ahead_is_adopted_at_once(system: SystemClocks) -> None:
    clock = WorkerClock()
    system.day_s += 8 * 3600.0  # the machine has slept
    clock.follow()
    assert clock() == system.day_s
    assert followed(clock, system, 10.0) == pytest.approx(10.0)


def test_a_clock_that_runs_a_little_wrong_is_followed(system: SystemClocks) -> None:
    clock = WorkerClock()
    for _ in range(1000):
        system.day_s += LOOK_EVERY_S * 1e-3
        followed(clock, system, LOOK_EVERY_S)
        assert abs(clock() - system.day_s) < 0.01


def test_a_large_step_is_told_once(system: SystemClocks, caplog: pytest.LogCaptureFixture) -> None:
    clock = WorkerClock()
    system.day_s -= 60.0
    with caplog.at_level(logging.WARNING):
        followed(clock, system, 10.0)
        (told,) = caplog.records
        assert "was set by -60.0 s" in told.getMessage()
        assert "within 20 minutes" in told.getMessage()
        followed(clock, system, 60.0 / SLEW, every_s=1.0)
        system.day_s += 60.0
        followed(clock, system, 1.0)
    assert len(caplog.records) == 2
