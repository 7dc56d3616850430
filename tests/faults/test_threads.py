"""A thread of the service that ends by an error is noticed, and the service says so."""

from __future__ import annotations

import logging

import pytest

from dirigo.runtime.threads import ServiceThread


def test_an_error_that_escapes_is_told_in_one_sentence_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def broken(number: int) -> None:
        raise ValueError(f"number {number}\nis wrong")

    thread = ServiceThread(broken, name="worker of tests", on_escape=told.append, args=(7,))
    with caplog.at_level(logging.CRITICAL):
        thread.start()
        thread.join()
    assert told == ["the thread 'worker of tests' of the service ended by an error: ValueError: number 7 is wrong"]
    assert "Traceback" in caplog.text
    assert thread.daemon


def test_not_even_an_exit_escapes_unnoticed() -> None:
    told: list[str] = []

    def leaves() -> None:
        raise SystemExit

    thread = ServiceThread(leaves, name="t", on_escape=told.append)
    thread.start()
    thread.join()
    assert told == ["the thread 't' of the service ended by an error: SystemExit"]


def test_a_thread_that_returns_tells_nothing() -> None:
    told: list[str] = []
    done: list[int] = []
    thread = ServiceThread(done.append, name="t", on_escape=told.append, args=(1,))
    thread.start()
    thread.join()
    assert done == [1]
    assert told == []
