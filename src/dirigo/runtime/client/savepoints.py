"""Savepoints as whoever submits a job names them, and the check that a flow can go on from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from dirigo.flow.errors import FlowError
from dirigo.flow.plan.description import PlanDescription, describe, read
from dirigo.flow.plan.matching import matched
from dirigo.flow.plan.plan import Plan
from dirigo.runtime.control import Beginning
from dirigo.runtime.errors import ControlError
from dirigo.runtime.snapshots.errors import DamagedSnapshot
from dirigo.runtime.snapshots.savepoint import Savepoint

SAVEPOINT_S = 600.0  # for a savepoint to be complete, if nobody says otherwise


def place_of(savepoint: object) -> str:
    """A folder as the service understands it: a URI, or an absolute path."""
    if not isinstance(savepoint, str | Path) or not str(savepoint):
        raise ControlError(f"{savepoint!r} is no folder for a savepoint; name it by a URI or a path.")
    text = str(savepoint)
    return text if "://" in text else str(Path(text).expanduser().absolute())


def seconds_of(timeout_s: object) -> float:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < float("inf"):
        raise ControlError(f"a savepoint is waited for some seconds, more than 0, not {timeout_s!r}.")
    return float(timeout_s)


def described_flow(savepoint: Savepoint) -> PlanDescription:
    """What a savepoint says of the flow that it is of."""
    try:
        return read(savepoint.manifest.plan)
    except msgspec.DecodeError as error:
        raise DamagedSnapshot(
            f"The savepoint in '{savepoint.place.shown}' does not say what flow it is of ({error}); use another one."
        ) from error


def beginning_of(
    plan: Plan, savepoint: str | Path | None, dropped: Sequence[str], renamed: Mapping[str, str] | None
) -> Beginning | None:
    """What the service is told of a savepoint that a flow fits to."""
    if savepoint is None:
        if dropped or renamed:
            raise ControlError("operators are dropped and renamed only in a job that begins with a savepoint; name it, too.")
        return None
    if isinstance(dropped, str):
        raise ControlError(f"dropped takes a list of names of operators, such as ['{dropped}'].")
    beginning = Beginning(place_of(savepoint), tuple(dropped), dict(renamed or {}))
    found = Savepoint.open(beginning.place)
    try:
        matched(described_flow(found), describe(plan), beginning.dropped, beginning.renamed)
    except FlowError as error:
        raise ControlError(
            f"dataflow '{plan.name}' cannot go on from the savepoint of job '{found.manifest.name}' in "
            f"'{found.place.shown}': {error}"
        ) from None
    return beginning
