"""Processes of a peer, each in a group of its own: with the group, whatever it started ends too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_ENDS_IN_S = 30.0


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Who asks this process to end (SIGTERM) raises an exception here, so that what it started ends too."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class StartedGroup:
    """A process that this one started; what it says goes to a file."""

    def __init__(self, command: Sequence[str], said: Path, environment: Mapping[str, str]) -> None:
        self._said = said
        with said.open("ab") as out:
            self._process = subprocess.Popen(
                list(command),
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> float:
        """End all of it as if its machine had lost power; the time of day in milliseconds when that was."""
        now_ms = time.time() * 1000
        if self._process.poll() is None or self.members():
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_ENDS_IN_S)
        return now_ms

    def members(self, with_words: str = "") -> list[int]:
        """Processes of this group whose command has these words."""
        command = ["ps", "-A", "-ww", "-o", "pid=,pgid=,stat=,args="]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_ENDS_IN_S).stdout
        lines = (line.split(None, 3) for line in listed.splitlines())
        return sorted(
            int(pid)
            for pid, group, state, words in (line for line in lines if len(line) == 4)
            if int(group) == self._process.pid and not state.startswith("Z") and with_words in words
        )

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def check(self, what: str) -> None:
        """Raises if it has ended, with what it said last."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{what} ended on its own: {self.last_words()}")

    def last_words(self) -> str:
        lines = self._said.read_text(errors="replace").splitlines()
        telling = [line for line in lines if "Error" in line or "Exception" in line] or lines
        return telling[-1][:500] if telling else "it said nothing"
