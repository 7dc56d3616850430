"""How much work waits at other workers, as far as it is known here: what they said last, and what was sent to them since;
and what they know of this one."""

from __future__ import annotations

from dirigo.kernel.interface.address import WorkerId

TELL_EVERY_S = 0.02  # so often workers see whether their loads are news for others
TOLD_AT_ONCE = 8  # how many others hear of it each time, at most
_STEP_S = 0.002  # a smaller change of load is no news
_UNDER_WAY_S = 0.005  # what was sent less than this ago, and up to twice as long, is not in what its receiver says


class WorkerLoads:
    """Figures in seconds of work, (urgent, in all)."""

    __slots__ = ("_said", "_sent")

    def __init__(self) -> None:
        self._said: dict[WorkerId, tuple[float, float, float]] = {}  # worker -> (urgent, in all, when)
        self._sent: dict[WorkerId, tuple[int, float, float]] = {}  # worker -> (period, sent in it, in the one before)

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._said

    def of(self, worker: WorkerId, now: float) -> tuple[float, float]:
        urgent_s, all_s, at = self._said.get(worker, (0.0, 0.0, now))
        passed_s = now - at  # it has been working meanwhile
        return (max(0.0, urgent_s - passed_s), max(0.0, all_s - passed_s))

    def add(self, worker: WorkerId, seconds: float, now: float) -> None:
        """So much is being sent there."""
        urgent_s, all_s = self.of(worker, now)
        self._said[worker] = (urgent_s + seconds, all_s + seconds, now)
        period, sent_s, before_s = self._lately(worker, now)
        self._sent[worker] = (period, sent_s + seconds, before_s)

    def note(self, worker: WorkerId, load: tuple[float, float], now: float) -> None:
        """It says that this much waits there; what it cannot have got yet comes on top."""
        _, sent_s, before_s = self._lately(worker, now)
        under_way_s = sent_s + before_s
        self._said[worker] = (load[0] + under_way_s, load[1] + under_way_s, now)

    def _lately(self, worker: WorkerId, now: float) -> tuple[int, float, float]:
        period = int(now / _UNDER_WAY_S)
        last, sent_s, before_s = self._sent.get(worker, (period, 0.0, 0.0))
        if last == period:
            return (period, sent_s, before_s)
        return (period, 0.0, sent_s if last == period - 1 else 0.0)


class ToldLoad:
    """What another worker was told last of the load here, and so believes: that it has been worked off since."""

    __slots__ = ("_all_s", "_at", "_urgent_s")

    def __init__(self) -> None:
        self._urgent_s = self._all_s = self._at = 0.0

    def note(self, load: tuple[float, float], now: float) -> None:
        self._urgent_s, self._all_s = load
        self._at = now

    def is_news(self, load: tuple[float, float], now: float) -> bool:
        """Whether a load is something quite different from what the other one believes."""
        passed_s = now - self._at
        return _differs(self._urgent_s - passed_s, load[0]) or _differs(self._all_s - passed_s, load[1])


def _differs(believed_s: float, load_s: float) -> bool:
    believed_s = max(0.0, believed_s)
    return abs(load_s - believed_s) > max(_STEP_S, 0.25 * believed_s)
