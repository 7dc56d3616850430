"""Ctrl-C and signals to end: whatever a command is doing, it is gone within some seconds, with all that it has started.

A signal first ends the command in order, by a KeyboardInterrupt on the main thread. Something may keep it from that: the
main thread waits for Java, another library handles the signal in its own way, or stopping takes long. So a thread hears of
the signal as well, and nothing else here can prevent that. If the command is still there after a moment, this thread
ends it, with all processes below it and its folders.

This file is loaded before anything else, so it must stay small: see ``dirigo.cli.main``.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

IN_ORDER_S = 2.5  # to end in order
_HEARD_WITHIN_S = 0.1  # a signal, by the thread that listens
_KILLED_S = 2.0  # for killed processes to be gone
_LOOK_S = 0.01
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDED_BY = 128  # plus the number of the signal: the exit code, as a shell has it
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of Linux

INTERRUPTED = _ENDED_BY + signal.SIGINT
CANCELLED = "cancelled"


class _Ending:
    """The signal that ends this process, once it has come. There is one object for the process."""

    def __init__(self) -> None:
        self.sign: int | None = None
        self._is_shielded = False
        self._is_raised = False
        self._is_due = False  # an interrupt that came while nothing may be interrupted

    def watch(self) -> None:
        """From now on, signals to end are heard."""
        logging.root.addFilter(_is_worth_telling)
        listening, told = os.pipe()
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        for sign in _SIGNALS:
            if signal.getsignal(sign) != signal.SIG_IGN:  # as in the background of a shell
                signal.signal(sign, self._interrupt)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)  # so that all that was started stays below this process
        os.register_at_fork(after_in_child=_forget_signals)  # they are not those of the command
        threading.Thread(target=self._listen, args=(listening,), name="signals", daemon=True).start()

    def _interrupt(self, sign: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.sign = self.sign or sign
        _be_quiet()
        if self._is_shielded:
            self._is_due = True
        elif not self._is_raised:  # once is enough: the end must not be interrupted
            self._is_raised = True
            raise KeyboardInterrupt

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Within, nothing is interrupted: what is done here belongs to the end. An interrupt comes after it."""
        before, self._is_shielded = self._is_shielded, True
        try:
            yield
        finally:
            self._is_shielded = before
        if self._is_due and not before and not self._is_raised:
            self._is_raised = True
            raise KeyboardInterrupt

    def _listen(self, listening: int) -> None:
        while True:
            heard = [sign for sign in os.read(listening, 64) if sign in _SIGNALS]
            if heard:
                break
        self.sign = self.sign or heard[0]
        # Not on this thread: the main thread may have the lock of logging, and for good. A signal that comes during a fork
        # is handled in the hooks that logging has around it, which swallow the interrupt, and leave the lock as it was.
        threading.Thread(target=_be_quiet, daemon=True).start()
        time.sleep(IN_ORDER_S)
        _say_cancelled()
        nothing = os.open(os.devnull, os.O_WRONLY)  # the main thread goes on, and would tell what it misses
        for output in (1, 2):
            os.dup2(nothing, output)
        end_process(_ENDED_BY + heard[0])


_ending = _Ending()
_is_said = threading.Lock()
shield = _ending.shield


def may_say_cancelled() -> bool:
    """Whether nobody has said yet what becomes of the interrupted command. Whoever asks is then the one to say it."""
    return _ending.sign is None or _is_said.acquire(blocking=False)


def _forget_signals() -> None:
    """In a process that was forked: it shares the pipe, and what it hears would end the command."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run_main(command: Callable[[], None]) -> None:
    """Call ``command``, which may take long to load, and end the process in the right way if a signal comes."""
    _ending.watch()
    code = 0
    try:
        command()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if _ending.sign is None and code != INTERRUPTED:
            raise
    except Exception:
        if _ending.sign is None:
            raise
        code = 1  # what failed belongs to the end: others, such as Java, may have heard the signal too
    if code == INTERRUPTED:  # while Spark starts, the signal is handled by PySpark, which raises a KeyboardInterrupt too
        _ending.sign = _ending.sign or signal.SIGINT
    if _ending.sign is None:
        return
    if code != 0:
        _say_cancelled()
    # There are commands that Ctrl-C ends well, such as a live view.
    end_process(code if _ending.sign == signal.SIGINT and code == 0 else _ENDED_BY + _ending.sign)


def end_process(code: int) -> NoReturn:
    """End this process at once: first all processes below it and its folders."""
    pools = sys.modules.get("dirigo.runtime.controller.pool")
    if pools is not None:
        with suppress(Exception):
            pools.replace_no_more()
    _kill_descendants()
    folders = sys.modules.get("dirigo.runtime.folders")
    if folders is not None:  # otherwise there are none
        with suppress(Exception):
            folders.remove_own()
            folders.remove_abandoned()
            folders.remove_no_more()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """The bridge to Java logs that it was interrupted, perhaps before the signal is heard here: give that a moment."""
    if "py4j" in record.pathname:
        time.sleep(_HEARD_WITHIN_S)
    return _ending.sign is None


def _be_quiet() -> None:
    """Libraries that are interrupted would fill pages with what they were doing, on whatever thread."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    threading.excepthook = lambda _: None
    sys.unraisablehook = lambda _: None


def _say_cancelled() -> None:
    """The one line of a command that was interrupted, in whatever state it has left the terminal."""
    if not may_say_cancelled():
        return
    with suppress(Exception):
        sys.stdout.flush()
    line = f"{CANCELLED}\n".encode()
    with suppress(OSError):
        os.write(1, b"\r\x1b[2K\x1b[?25h" + line if os.isatty(1) else line)


# --- processes -------------------------------------------------------------------------------------------------------------


def _kill_descendants() -> None:
    until = time.monotonic() + _KILLED_S
    while time.monotonic() < until:
        living = descendants(os.getpid())
        for pid in living:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not living and _is_childless():
            return
        time.sleep(_LOOK_S)


def _is_childless() -> bool:
    """Whether all children are gone for good. One whose first thread has ended and others not yet holds its locks still."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def descendants(pid: int) -> list[int]:
    """The processes below one, however deep, that have not ended."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        found += level
    return found


def _parents() -> Iterator[tuple[int, int]]:
    """(process, its parent) for all processes that have not ended."""
    if not Path("/proc/self/stat").exists():
        told = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=False).stdout
        for line in told.splitlines():
            child, parent, state = line.split(maxsplit=2)
            if not state.startswith("Z"):
                yield int(child), int(parent)
        return
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # gone meanwhile
                state, parent = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                if state not in ("Z", "X"):
                    yield int(entry.name), int(parent)
