"""What can be wrong with a dataflow: as it is written, and while it runs."""

from __future__ import annotations

from dirigo.kernel import DirigoError


class FlowError(DirigoError):
    """A dataflow cannot be built as it is written. The message is one sentence that says what to change."""


class RowFailure(DirigoError):
    """A job failed on a row. The message names the row, the operator and the reason."""
