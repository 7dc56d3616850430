"""Points in time out of text, as files of lines have them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_ZONED: Final = r":\d{2}(\.\d+)?(Z|[+-]\d{2}(:?\d{2})?)$"


def timestamps_of(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO 8601 as timestamps of this type; ArrowInvalid if a text is not one.

    A time without a zone is in UTC; digits that the column has no room for are dropped.
    """
    unit = "ns" if kind.unit == "ns" else "us"
    try:
        found = texts.cast(pa.timestamp(unit, "UTC"))
    except pa.ArrowInvalid:  # the cast wants all of them with a zone, and no more digits than it keeps
        found = _of_any_form(texts, unit)
    return found.cast(pa.timestamp(unit, kind.tz)).cast(kind, safe=False)


def _of_any_form(texts: pa.Array, unit: str) -> pa.Array:
    if unit == "us":
        texts = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    is_zoned = pc.match_substring_regex(texts, _ZONED)
    zoned = pc.if_else(is_zoned, texts, None).cast(pa.timestamp(unit, "UTC"))
    plain = pc.if_else(is_zoned, None, texts).cast(pa.timestamp(unit)).cast(pa.timestamp(unit, "UTC"))
    return pc.coalesce(zoned, plain)
