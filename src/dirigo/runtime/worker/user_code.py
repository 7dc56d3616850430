"""Where the kernel meets user code, so that it runs on the worker thread only, and never while that holds the core's lock.

User code is more than functions: states are made, combined, compared, copied and measured by it, and whatever is pickled or
unpickled may run it. So the kernel gets states that are made when they are first used and views that are read when the next
message runs (``HostedStates``); what functions emit is pickled before the kernel sees it, and read by the function that gets
it (``HostedBehaviour``). What a barrier has to do with states is an errand for the worker thread, unless it is known to run
no code but our own. Hooks of a strategy are not meant: they decide for the kernel, and run under its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from msgspec.structs import force_setattr
from msgspec.structs import replace as replaced

from dirigo.flow.errors import OperatorFailure, note_place, said
from dirigo.flow.event_time.watermark import Watermark
from dirigo.flow.operators.operator import Operator
from dirigo.flow.operators.process.states import ProcessStates
from dirigo.flow.plan.snapshot_barrier import SnapshotBarrier
from dirigo.flow.plan.states import StageCapture, StageStates
from dirigo.kernel import (
    Address,
    Behaviour,
    Context,
    CriticalOutput,
    CriticalRun,
    Errand,
    ErrandKind,
    FunctionSpec,
    Granularity,
    Output,
    States,
    operator_of,
)
from dirigo.runtime.transport.payload import PackedPayload, Schemas, is_rows, opened, sealed

# What is pickled without running anybody's code.
_PLAIN_TYPES = frozenset({type(None), bool, int, float, str, bytes, Watermark, SnapshotBarrier, PackedPayload})

Emitted = TypeVar("Emitted", bound=Output | CriticalOutput)


def hosted(
    spec: FunctionSpec,
    operator: Operator,
    schemas: Schemas,
    restored: MutableMapping[Address, HostedStates],
    *,
    captures_end: bool,
) -> FunctionSpec:
    """An actor as the kernel of a worker gets it. States that were ``restored`` from a snapshot are taken from there.

    ``captures_end``: whether what its states are at the end of its input is captured, as for a snapshot.
    """

    def states() -> HostedStates:
        return restored.pop(spec.address, None) or HostedStates(spec.states, operator.keeps_users_objects)

    def behaviour(states: States) -> Behaviour:
        assert isinstance(states, HostedStates)
        return HostedBehaviour(spec.behaviour(states.inner()), states, schemas, captures_end)

    return replace(spec, states=states, behaviour=behaviour)


def sealed_outputs(outputs: Sequence[Emitted], emitter: Address, schemas: Schemas) -> Sequence[Emitted]:
    """Seal what is not made of batches: here, where its pickling may run user code."""
    for output in outputs:
        payload = output.payload
        if type(payload) not in _PLAIN_TYPES and (output.critical or not is_rows(payload)):
            force_setattr(output, "payload", _sealed(payload, emitter, schemas))
    return outputs


def _sealed(payload: Any, emitter: Address, schemas: Schemas) -> PackedPayload:
    try:
        return sealed(payload, schemas, is_handed_over=False)
    except Exception as error:
        name = operator_of(emitter)
        what = f"operator '{name}' emitted something that cannot be sent to other workers: {said(error)}"
        raise OperatorFailure(what) from error
    except BaseException as error:
        note_place(error, operator_of(emitter))
        raise


class HostedStates:
    """The states of one instance. What there is to do with them may run user code: see ``needs_thread``."""

    __slots__ = (
        "_inner",
        "_make",
        "_restored_view",
        "_size_bytes",
        "can_be_measured",
        "changes",
        "has_changed",
        "held_bytes",
        "is_users",
        "views",
    )

    def __init__(self, make: Callable[[], States], is_users: bool) -> None:
        self._make = make
        self._inner: States | None = None
        self.is_users = is_users  # there may be objects of the user's in them
        self.views: list[Any] | None = None  # that have come and have not been read
        self.has_changed = False  # since they were measured
        self.changes = 0  # how often they may have changed: what is the same as in the last snapshot is not written again
        self._restored_view: tuple[Any] | None = None
        self.can_be_measured = True  # until that has failed
        self.held_bytes = 0  # when they were measured
        self._size_bytes = 0

    def inner(self) -> States:
        """The states themselves."""
        inner = self._inner
        if inner is None:
            inner = self._inner = self._make()
        return inner

    def read_views(self) -> None:
        """Adopt what has come; more may come meanwhile, on another thread."""
        while self.views:
            view = self.views.pop(0)
            if not self.views:
                self.inner().install_view(opened(view))

    def has_ended(self) -> bool:
        """Whether the input of the instance has ended."""
        return isinstance(self._inner, StageStates) and self._inner.progress.has_ended

    def needs_thread(self, kind: ErrandKind) -> bool:
        """Whether this may run user code: in objects, not in numbers, texts and flat containers of them; and in combine."""
        if not self.is_users:
            return False
        inner = self._inner
        if inner is None:
            return kind in (ErrandKind.MERGE, ErrandKind.VIEW)
        own = inner.own if isinstance(inner, StageStates) else None
        if not isinstance(own, ProcessStates):
            return False  # an ordered operator's, which has them all in one place
        if kind is ErrandKind.MERGE:
            return True
        return (kind is ErrandKind.TAKE or own.is_replicated()) and not own.is_plain()

    def measure(self) -> None:
        self.has_changed = False
        if isinstance(self._inner, StageStates):
            self._size_bytes = self._inner.size_bytes()
            self.held_bytes = self._inner.held_bytes()

    # --- as the kernel moves them --------------------------------------------------------------------------------------

    def note_change(self) -> None:
        self.has_changed = True
        self.changes += 1

    def restore(self, captured: StageCapture, schemas: Schemas) -> None:
        """Adopt what a snapshot has."""
        self.begin(lambda inner: inner.restore(captured), schemas)

    def begin(self, restore: Callable[[StageStates], None], schemas: Schemas) -> None:
        """Begin with something. Runs user code; so what lessees may read, the kernel finds made when it asks."""
        inner = self.inner()
        assert isinstance(inner, StageStates)
        restore(inner)
        view = inner.view()
        is_users = self.needs_thread(ErrandKind.VIEW)
        self._restored_view = (sealed(view, schemas, is_handed_over=True) if is_users else view,)
        self.has_changed = True  # since they were measured

    def take(self) -> Any:
        self.note_change()
        return None if self._inner is None else self._inner.take()

    def merge(self, partial: Any) -> None:
        self.note_change()
        content = opened(partial)
        if content is not None:
            self.inner().merge(content)

    def is_identity(self) -> bool:
        return self._inner is None or self._inner.is_identity()

    def size_bytes(self) -> int:
        """Of what is the user's, as it was last measured: see ``measure``."""
        if self._inner is not None and not self.is_users:
            self._size_bytes = self._inner.size_bytes()
        return self._size_bytes

    def view(self) -> Any | None:
        if self._restored_view is not None:
            (view,), self._restored_view = self._restored_view, None
            return view
        return self.inner().view()

    def install_view(self, view: Any) -> None:
        if self.views is None:
            self.views = [view]
        else:
            self.views.append(view)


class HostedBehaviour:
    """A function, between what came from elsewhere and what may go elsewhere."""

    __slots__ = ("_captures_end", "_inner", "_schemas", "_states")

    def __init__(self, inner: Behaviour, states: HostedStates, schemas: Schemas, captures_end: bool) -> None:
        self._inner = inner
        self._states = states
        self._schemas = schemas
        self._captures_end = captures_end

    def on_message(self, context: Context, payload: Any) -> None:
        states = self._states
        if states.views:
            states.read_views()
        states.note_change()
        if type(payload) is PackedPayload:
            payload = _read(payload, context)
        self._inner.on_message(context, payload)
        if context.outputs or context.timers:
            self._seal(context)

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        states = self._states
        if states.views:
            states.read_views()
        if critical.granularity is not Granularity.SNAPSHOT:
            states.note_change()
        if any(type(payload) is PackedPayload for _, _, payload in critical.parts):
            parts = tuple((actor, number, _read(payload, context)) for actor, number, payload in critical.parts)
            critical = replaced(critical, parts=parts)
        self._inner.on_critical(context, critical)
        if self._captures_end and states.has_ended():
            context.captured = states.inner().capture()  # type: ignore[attr-defined]
        if context.outputs or context.timers:
            self._seal(context)

    def _seal(self, context: Context) -> None:
        sealed_outputs(context.outputs, context.address, self._schemas)
        if context.timers:
            context.timers = tuple(self._sealed_timers(context.timers, context.address))

    def _sealed_timers(self, timers: Iterable[tuple[float, Any]], emitter: Address) -> Iterable[tuple[float, Any]]:
        for due, payload in timers:
            yield due, payload if type(payload) in _PLAIN_TYPES else _sealed(payload, emitter, self._schemas)


def _read(payload: Any, context: Context) -> Any:
    try:
        return opened(payload)
    except Exception as error:
        name = operator_of(context.address)
        what = f"operator '{name}' failed: a message to it cannot be read: {said(error)}"
        raise OperatorFailure(what) from error
    except BaseException as error:
        note_place(error, operator_of(context.address))
        raise


def do(errand: Errand, schemas: Schemas) -> Any:
    """Do what a barrier needs, and pack what leaves."""
    try:
        result = errand.work()
        return None if result is None else sealed(result, schemas, is_handed_over=True)
    except OperatorFailure:  # which says all of it
        raise
    except Exception as error:
        name = operator_of(errand.instance.address)
        what = f"operator '{name}' failed while {errand.kind.value}: {said(error)}"
        raise OperatorFailure(what) from error
    except BaseException as error:
        note_place(error, operator_of(errand.instance.address))
        raise
