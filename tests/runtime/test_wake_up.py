"""A thread that sleeps is woken by a call, by one that came before, or by its clock: whatever comes first."""

from __future__ import annotations

import threading

from dirigo.runtime.worker.wake_up import WakeUp
from runtime.clusters import PATIENCE_S


def in_time(work: threading.Thread) -> bool:
    work.daemon = True
    work.start()
    work.join(PATIENCE_S)
    return not work.is_alive()


def test_a_call_wakes_who_sleeps_and_who_wants_to() -> None:
    wake_up, rounds = WakeUp(), 1_000
    awake = WakeUp()

    def sleep() -> None:
        for _ in range(rounds):
            wake_up.sleep(PATIENCE_S)
            awake.call()

    sleeper = threading.Thread(target=sleep, daemon=True)
    sleeper.start()
    for _ in range(rounds):
        wake_up.call()
        awake.sleep(PATIENCE_S)
    sleeper.join(PATIENCE_S)
    assert not sleeper.is_alive()


def test_several_calls_are_one() -> None:
    wake_up = WakeUp()
    wake_up.call()
    wake_up.call()
    assert in_time(threading.Thread(target=wake_up.sleep, args=(PATIENCE_S * 10,)))
    still_sleeps = threading.Thread(target=wake_up.sleep, args=(PATIENCE_S * 10,), daemon=True)
    still_sleeps.start()
    still_sleeps.join(0.05)
    assert still_sleeps.is_alive()
    wake_up.call()
    still_sleeps.join(PATIENCE_S)
    assert not still_sleeps.is_alive()


def test_a_sleep_ends_when_its_time_is_up_even_if_that_was_before_it_began() -> None:
    """A queue of the standard library goes on without end here, and with it went a worker that had only sources to read."""
    wake_up = WakeUp()

    def sleep_shortly() -> None:
        for _ in range(20_000):
            wake_up.call()
            wake_up.sleep(PATIENCE_S)
            wake_up.sleep(1e-6)

    assert in_time(threading.Thread(target=sleep_shortly))
