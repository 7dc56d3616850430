"""How much is kept of why a job failed: an error may hold all rows that there are."""

from __future__ import annotations

from typing import Final

from dirigo.flow.errors import cut_text

ERROR_CHARACTERS_MOST: Final = 10_000  # of why a job failed
TRACE_CHARACTERS_MOST: Final = 100_000  # of where


def cut_failure(error: str, trace: str | None) -> tuple[str, str | None]:
    """Why a job failed, and where, cut to what everybody keeps of it."""
    return cut_text(error, ERROR_CHARACTERS_MOST), None if trace is None else cut_text(trace, TRACE_CHARACTERS_MOST)
