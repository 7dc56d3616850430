"""Who writes where: a place that one job writes to is refused to all others for as long as it runs.

A client claims the places of a job before it prepares them, since preparing may remove earlier results, and then submits the
job. A claim that is not followed by its job ends by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dirigo.runtime.controller.job_record import JobRecord
from dirigo.runtime.errors import ControlError

CLAIM_S: Final = 60.0
_CLAIMS_MOST: Final = 10_000


@dataclass
class _Claim:
    job: str
    places: Mapping[str, str]  # by sink
    until_s: float


class Claims:
    """Part of the controller, on its thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._claims: dict[str, _Claim] = {}

    def take(self, claim: str, job: str, places: Mapping[str, str], jobs: Iterable[JobRecord]) -> None:
        """Keep these places for a job that is about to be submitted; without any, let go of the claim."""
        self.let_go(claim)
        if not places:
            return
        self.check(job, places, jobs)
        if len(self._claims) >= _CLAIMS_MOST:
            raise ControlError("too many jobs are being submitted at once; try again in a minute.")
        self._claims[claim] = _Claim(job, places, self._clock() + CLAIM_S)

    def let_go(self, claim: str) -> None:
        self._claims.pop(claim, None)

    def check(self, job: str, places: Mapping[str, str], jobs: Iterable[JobRecord], claim: str = "") -> None:
        """Refuse places that another job writes to, or has claimed."""
        now = self._clock()
        self._claims = {token: each for token, each in self._claims.items() if each.until_s > now}
        taken: dict[str, tuple[str, str]] = {}  # place -> the sink and the job that have it
        for token, each in self._claims.items():
            if token != claim:
                taken |= {place: (sink, each.job) for sink, place in each.places.items()}
        for record in jobs:
            if record.is_live:
                taken |= {place: (sink, record.name) for sink, place in record.manifest.places.items()}
        for sink, place in places.items():
            for other_place, (other_sink, other) in taken.items():
                if _overlap(place, other_place):
                    where = "there" if place == other_place else f"to '{other_place}'"
                    raise ControlError(
                        f"sink '{sink}' of job '{job}' cannot write to '{place}': job '{other}', which is running, writes "
                        f"{where} in its sink '{other_sink}'; choose another place, or cancel that job and wait for its end."
                    )


def _overlap(one: str, other: str) -> bool:
    """Whether two places are the same, or one is a folder in the other: whoever reads a folder reads what is below it."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
