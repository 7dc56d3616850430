"""What can be wrong with a dataflow: as it is written, and while it runs."""

from __future__ import annotations

from typing import Final

from dirigo.errors import DirigoError

SAID_CHARACTERS_MOST: Final = 8_000  # by an error: its text is user code, and may hold all rows that there are
_MARK_CHARACTERS: Final = 50


class FlowError(DirigoError):
    """A dataflow cannot be built as it is written. The message is one sentence that says what to change."""


class OperatorFailure(DirigoError):  # noqa: N818  # what happened to the job
    """A job failed inside an operator, not on a single row. The message names the operator and the reason."""


class CaptureFailure(DirigoError):  # noqa: N818  # what happened to the snapshot
    """What an operator keeps cannot be part of a snapshot. The message names the operator and the reason.

    It ends the snapshot, never the job: see ``StageBehaviour``.
    """


_RAISED_IN: Final = "It was raised in "


def note_place(error: BaseException, name: str, kind: str = "operator") -> None:
    """Have what is no ``Exception`` say where it came from: it passes all operators, and in a worker it fails its job."""
    if not any(note.startswith(_RAISED_IN) for note in getattr(error, "__notes__", ())):
        error.add_note(f"{_RAISED_IN}{kind} '{name}'.")


def failure_of(operator: str, error: Exception) -> OperatorFailure:
    """What an exception inside an operator comes to."""
    return OperatorFailure(f"operator '{operator}' failed: {said(error)}")


def cut_text(text: str, most: int = SAID_CHARACTERS_MOST) -> str:
    """The text of an error; of a very long one, the beginning and the end."""
    if len(text) <= most:
        return text
    half = (most - _MARK_CHARACTERS) // 2
    return f"{text[:half]} ... ({len(text):,} characters in all) ... {text[-half:]}"


def said(error: BaseException) -> str:
    """What an error says, cut if it is very long. Its text is user code, which may fail as well."""
    try:
        text = cut_text(f"{type(error).__name__}: {error}")
    except Exception:
        return f"{type(error).__name__}, which cannot say what happened"
    return text.encode("utf-8", "backslashreplace").decode()  # the name of a file may be no Unicode


class RowFailure(DirigoError):  # noqa: N818  # what happened to the job
    """A job failed on a row. The message names the row, the operator and the reason."""
