"""Rows that cannot be handled: finding them, naming them, and leaving the good ones alone.

A bad row is never dropped in silence. It fails the job with a sentence that names it (the default), or it goes, complete, to
the flow's stream of errors and the job goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.errors import RowFailure, cut_text, said
from dirigo.flow.rows.unreadable import rows_told

OnError = Literal["fail", "side_output"]

ERRORS = pa.schema([("operator", pa.string()), ("error", pa.string()), ("row", pa.string())])
_SHOWN_CHARACTERS_MOST = 400


@dataclass(frozen=True)
class Bad:
    """One row and what is wrong with it."""

    row: Mapping[str, Any] | str
    error: Exception | str
    what: str = "the row"  # or what else could not be handled


BadRows = Sequence[Bad]


def raise_for(bad: Bad, operator: str) -> NoReturn:
    """Fail the job on a row."""
    text = shown(bad.row)
    if len(text) > _SHOWN_CHARACTERS_MOST:
        text = f"{text[:_SHOWN_CHARACTERS_MOST]}... ({len(text):,} characters in all)"
    failure = RowFailure(
        f"operator '{operator}' cannot handle {bad.what} {text}: {described(bad.error)} "
        "Mend it or the operator, or keep what is bad apart with Dataflow(..., on_error='side_output')."
    )
    raise failure from (bad.error if isinstance(bad.error, Exception) else None)


def described(error: Exception | str) -> str:
    """What is wrong, as a sentence, which is cut if it is very long."""
    text = cut_text(error) if isinstance(error, str) else said(error)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def shown(row: Mapping[str, Any] | str) -> str:
    """A row as text, complete."""
    return row if isinstance(row, str) else json.dumps(dict(row), default=str, ensure_ascii=False)


def rows_at(batch: pa.RecordBatch, which: npt.NDArray[Any], error: str) -> list[Bad]:
    """Bad rows of a batch, by position or mask, all for the same reason."""
    positions = np.flatnonzero(which) if which.dtype == bool else which
    return [Bad(row, error) for row in rows_told(batch.take(pa.array(positions)))]


def without(batch: pa.RecordBatch, mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    return batch.filter(pa.array(~mask))


def try_each_part(
    function: Callable[[pa.RecordBatch], pa.RecordBatch], batch: pa.RecordBatch, cause: Exception
) -> tuple[list[pa.RecordBatch], list[Bad]]:
    """What can be had of a batch on which a vectorised function failed: halve it until each bad row stands alone."""
    if batch.num_rows <= 1:
        return [], [Bad(row, cause) for row in rows_told(batch)]
    good: list[pa.RecordBatch] = []
    bad: list[Bad] = []
    middle = batch.num_rows // 2
    for part in (batch.slice(0, middle), batch.slice(middle)):
        try:
            good.append(function(part))
        except Exception as error:  # user code may raise anything
            more_good, more_bad = try_each_part(function, part, error)
            good += more_good
            bad += more_bad
    return good, bad
