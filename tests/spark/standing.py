"""A worker for tests: it only stands there, leaves a file with its process id, and goes when another file appears."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spark.standalone import is_alive, wait_for

Payload = tuple[str, int]


def standing() -> Callable[[Payload], None]:
    """The target. Spark's processes cannot import tests, so it is pickled whole, which inner functions are."""

    def stand(payload: Payload) -> None:
        import os
        import time
        from pathlib import Path

        folder, slot = Path(payload[0]), payload[1]
        (folder / f"{slot}-{os.getpid()}-{time.monotonic_ns()}").touch()
        while not (folder / f"go-{slot}").exists():
            time.sleep(0.02)
            if (folder / f"fail-{slot}").exists():
                (folder / f"fail-{slot}").unlink()
                raise ValueError(f"slot {slot} was told to fail")
        (folder / f"gone-{slot}").touch()

    return stand


class Stand:
    """What the workers of one test left in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def payload(self, slot: int) -> Payload:
        return str(self.folder), slot

    def runs(self, slot: int) -> list[int]:
        """The process ids of the runs of a slot, oldest first."""
        found = sorted((name.split("-") for name in self._names(f"{slot}-*")), key=lambda parts: int(parts[2]))
        return [int(pid) for _, pid, _ in found]

    def wait_for_run(self, slot: int, number: int = 1) -> int:
        """The process id of the so-manieth run of a slot, as soon as it has begun."""
        wait_for(lambda: len(self.runs(slot)) >= number, f"run {number} of slot {slot}")
        return self.runs(slot)[number - 1]

    def tell(self, word: str, slot: int) -> None:
        (self.folder / f"{word}-{slot}").touch()

    def has_gone(self, slot: int) -> bool:
        """Whether the worker went by itself."""
        return (self.folder / f"gone-{slot}").exists()

    def alive(self) -> list[int]:
        """The processes of all runs that are still there."""
        return [pid for name in self._names("[0-9]-*") if is_alive(pid := int(name.split("-")[1]))]

    def _names(self, pattern: str) -> list[str]:
        return [path.name for path in self.folder.glob(pattern)]
