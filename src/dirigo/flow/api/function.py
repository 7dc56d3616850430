"""A function of the user's own, with managed states, timers and critical messages: the actor underneath the operators."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pyarrow as pa

from dirigo.flow.api.function_context import FunctionContext
from dirigo.flow.rows.row import Row


class Function:
    """Subclass it, declare states as class attributes, and override what you need.

    Behind ``key_by``, states and timers are those of the current key. That is the row's key in ``on_message``; the methods
    that run alone are called once for every key that holds a state or a timer. With ``scope = "partition"`` they belong to
    the partition instead, with all its keys. A function that declares no state and has no ``on_timer`` keeps nothing for a
    key, so its calls are those of the partition in any case.

    ``on_message`` may run at several workers at once, each with a partial state of its own; everything else runs alone, with
    the whole state. Set ``ordered = True`` if the function must see its rows one after the other at one place.
    Keep nothing in attributes of your own: an idle function is thrown away, only its states stay.
    """

    ordered: ClassVar[bool] = False
    scope: ClassVar[Literal["key", "partition"]] = "key"

    def on_message(self, context: FunctionContext, row: Row) -> None:
        """A row has come."""
        raise NotImplementedError(f"{type(self).__name__} must say in on_message (or on_batch) what happens to a row")

    def on_batch(self, context: FunctionContext, batch: pa.RecordBatch) -> None:
        """Many rows have come, of many keys: override this instead of ``on_message`` to work on Arrow columns."""
        context.each_row(self, batch)

    def on_watermark(self, context: FunctionContext, time_ms: int) -> None:
        """No row older than ``time_ms`` follows."""

    def on_timer(self, context: FunctionContext, payload: Any) -> None:
        """A timer is due, or something that was asked to run alone."""

    def on_critical(self, context: FunctionContext, payload: Any) -> None:  # noqa: ARG002
        """A critical message of a function upstream. By default it is passed on.

        A barrier with ``granularity="one"`` has a message of each upstream partition; it is passed on once, with the first.
        However many keys pass a message on, it goes on once. Where no key holds anything, this method is not called, and the
        message goes no further.
        """
        context.pass_on()

    def on_end(self, context: FunctionContext) -> None:
        """All inputs have ended."""
