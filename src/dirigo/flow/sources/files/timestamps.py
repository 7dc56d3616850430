"""Points in time out of text, as files of lines have them."""

from __future__ import annotations

import pyarrow as pa


def timestamps_of(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO 8601 as timestamps of this type; ArrowInvalid if a text is not one.

    A time without a zone is in UTC; digits that the column has no room for are dropped.
    """
    unit = "ns" if kind.unit == "ns" else "us"
    try:
        found = texts.cast(pa.timestamp(unit, "UTC"))
    except pa.ArrowInvalid:  # the cast wants either all of them with a zone or all without
        found = texts.cast(pa.timestamp(unit)).cast(pa.timestamp(unit, "UTC"))
    return found.cast(pa.timestamp(unit, kind.tz)).cast(kind, safe=False)
