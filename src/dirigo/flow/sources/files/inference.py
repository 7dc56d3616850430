"""Which types the columns of files of lines have, judging by their first rows: one place, so that all formats agree.

Numbers, booleans and nested values are what the parser of the format takes them for. Text is a date or a point in time if
all of it looks like one in ISO 8601. Where no row has a value, the column is taken for text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.errors import FlowError
from dirigo.flow.sources.files.line_blocks import first_lines
from dirigo.flow.sources.files.text_files import first_sentence
from dirigo.flow.sources.files.timestamps import timestamps_of

SAMPLE_LINES: Final = 1000  # the same for all formats, however long their lines are
_DATE: Final = r"^\d{4}-\d{2}-\d{2}$"
_TIME: Final = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?$"
_FRACTION: Final = r"\.(?P<digits>\d+)"

Reader = Callable[[Path, bytes, Sequence[str]], pa.Table | None]
"""Reads some lines of a file, with these columns as text; None if there is no row among them."""


def infer_schema(files: Sequence[Path], read: Reader, what: str) -> pa.Schema:
    """The columns and types of the first rows: those of the first file that has any."""
    for file in files:
        lines = first_lines(file, SAMPLE_LINES, what)
        if lines.isspace() or not lines:
            continue
        try:
            found = read(file, lines, ())
            if found is None:
                continue
            texts = [field.name for field in found.schema if _may_be_text(field.type)]
            told = read(file, lines, texts) if texts else found
        except pa.ArrowException as error:
            reason = first_sentence(error)
            raise FlowError(f"{what}: the columns of '{file}' cannot be worked out ({reason}); give schema=.") from None
        assert told is not None
        return pa.schema(
            [
                (field.name, type_of_texts(told.column(field.name)) if field.name in texts else field.type)
                for field in found.schema
            ]
        )
    raise FlowError(f"{what}: there are no rows to work the columns out from; give schema=.")


def type_of_texts(texts: pa.ChunkedArray | pa.Array) -> pa.DataType:
    """A date, a point in time in UTC, fine enough for all digits, or text."""
    texts = texts.drop_null()
    if not len(texts):
        return pa.string()
    try:
        if pc.all(pc.match_substring_regex(texts, _DATE)).as_py():
            texts.cast(pa.date32())
            return pa.date32()
        if pc.all(pc.match_substring_regex(texts, _TIME)).as_py():
            digits = pc.struct_field(pc.extract_regex(texts, _FRACTION), "digits")
            most = pc.max(pc.binary_length(digits)).as_py() or 0
            kind = pa.timestamp("ms" if most <= 3 else "us" if most <= 6 else "ns", "UTC")
            timestamps_of(texts, kind)
            return kind
    except pa.ArrowInvalid:  # the 30th of February, say
        pass
    return pa.string()


def _may_be_text(kind: pa.DataType) -> bool:
    """Whether a parser may have made this of text, or of nothing."""
    return bool(pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_temporal(kind))
