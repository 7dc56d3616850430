"""What can be wrong with a dataflow: as it is written, and while it runs."""

from __future__ import annotations

from dirigo.kernel import DirigoError


class FlowError(DirigoError):
    """A dataflow cannot be built as it is written. The message is one sentence that says what to change."""


class OperatorFailure(DirigoError):  # noqa: N818  # what happened to the job
    """A job failed inside an operator, not on a single row. The message names the operator and the reason."""


def failure_of(operator: str, error: Exception) -> OperatorFailure:
    """What an exception inside an operator comes to."""
    return OperatorFailure(f"operator '{operator}' failed: {said(error)}")


def said(error: BaseException) -> str:
    """What an error says. Its text is user code, which may fail as well."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, which cannot say what happened"


class RowFailure(DirigoError):  # noqa: N818  # what happened to the job
    """A job failed on a row. The message names the row, the operator and the reason."""
