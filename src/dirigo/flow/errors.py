"""What can be wrong with a dataflow: as it is written, and while it runs."""

from __future__ import annotations

from dirigo.kernel import DirigoError


class FlowError(DirigoError):
    """A dataflow cannot be built as it is written. The message is one sentence that says what to change."""


class OperatorFailure(DirigoError):  # noqa: N818  # what happened to the job
    """A job failed inside an operator, not on a single row. The message names the operator and the reason."""


# Exceptions by which code asks its whole process to end: they pass all operators, and in a worker they fail their job.
QUITS = (KeyboardInterrupt, SystemExit, GeneratorExit)


def note_place(error: BaseException, operator: str) -> None:
    """Have an exception that passes all operators say where it came from."""
    if not getattr(error, "__notes__", ()):
        error.add_note(f"It was raised in operator '{operator}'.")


def failure_of(operator: str, error: Exception) -> OperatorFailure:
    """What an exception inside an operator comes to."""
    return OperatorFailure(f"operator '{operator}' failed: {said(error)}")


def said(error: BaseException) -> str:
    """What an error says. Its text is user code, which may fail as well."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, which cannot say what happened"
    return text.encode("utf-8", "backslashreplace").decode()  # the name of a file may be no Unicode


class RowFailure(DirigoError):  # noqa: N818  # what happened to the job
    """A job failed on a row. The message names the row, the operator and the reason."""
