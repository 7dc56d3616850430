"""All errors that users meet can be caught as one, and say where they happened."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil

import pytest

import dirigo
import dirigo as dg
from dirigo.state.combine import add
from dirigo.state.errors import CombineError

# Caught where they are raised, or a few lines above: no user sees one.
INTERNAL = {
    "BadPacketError",  # of a connection, which is refused
    "BadRecordError",  # of a results log, which fails its job with a sentence
    "Crash",  # ends a simulation that is to crash, where that was asked for
    "JobGone",  # stops the code of a job that was removed
    "NotOursError",  # of a reader that another one has replaced, whose worker says so in a sentence
    "StuckError",  # ends the process of a worker, whose controller says why
    "UnfitLinesError",  # of a file, whose rows become bad rows
    "UnreadableTypeError",
}


def exceptions() -> dict[str, type[BaseException]]:
    """Every exception with a public name that the product defines."""
    found: dict[str, type[BaseException]] = {}
    for module in pkgutil.walk_packages(dirigo.__path__, "dirigo."):
        for name, thing in vars(importlib.import_module(module.name)).items():
            is_ours = inspect.isclass(thing) and thing.__module__ == module.name
            if is_ours and issubclass(thing, BaseException) and not name.startswith("_"):
                found[name] = thing
    return found


def test_every_error_of_ours_is_a_dirigo_error() -> None:
    found = exceptions()
    assert {"ControlError", "FlowError", "JobFailed", "LogError", "ProtocolError", "StateError"} <= set(found)
    assert {name for name, kind in found.items() if not issubclass(kind, dg.DirigoError)} == INTERNAL


def test_every_public_error_is_a_dirigo_error() -> None:
    public = [getattr(dg, name) for name in dg.__all__]
    errors = [each for each in public if inspect.isclass(each) and issubclass(each, BaseException)]
    assert {dg.FlowError, dg.JobFailed, dg.ControlError, dg.StateError, dg.StillRunning} <= set(errors)
    assert all(issubclass(each, dg.DirigoError) for each in errors)


@pytest.mark.parametrize("kind", [dg.StateError, CombineError, dg.ControlError, dg.StillRunning, dg.JobFailed])
def test_errors_travel(kind: type[Exception]) -> None:
    again = pickle.loads(pickle.dumps(kind("a sentence.")))
    assert type(again) is kind
    assert str(again) == "a sentence."


def test_who_waits_may_catch_what_python_has_for_it() -> None:
    assert issubclass(dg.StillRunning, TimeoutError)


class AssignsInAMessage(dg.Function):
    scope = "partition"
    seen = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.seen = row.a


class AssignsAtTheEnd(dg.Function):
    scope = "partition"
    seen = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)

    def on_end(self, context: dg.FunctionContext) -> None:
        self.seen = 1  # type: ignore[assignment]


@pytest.mark.parametrize("function", [AssignsInAMessage, AssignsAtTheEnd])
def test_an_error_of_a_state_names_the_operator_that_uses_it(function: type[dg.Function]) -> None:
    """A state does not know whose it is."""
    flow = dg.Dataflow("misused")
    flow.source(dg.from_iterable([{"a": 1}])).process(function, schema={"a": int}, name="counting").sink(dg.to_memory())
    with pytest.raises(dg.DirigoError, match=r"operator 'counting' .*State 'seen' cannot be assigned"):
        dg.testing.run(flow)


def test_an_error_of_a_combine_function_names_its_operator() -> None:
    """Without a cluster too, where nobody stands between the kernel and the states."""

    def cannot(one: int, other: int) -> int:
        if one and other:
            raise ZeroDivisionError("not these")
        return one or other

    class Counts(dg.Function):
        seen = dg.ValueState(int, default=0, combine=cannot)

        def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
            self.seen.set(1)

    flow = dg.Dataflow("combined")
    rows = flow.source(dg.from_iterable([{"k": 1, "at": number} for number in range(50)], time="at"))
    rows.key_by("k").process(Counts, {"k": int}, name="counting").sink(dg.to_memory())
    with pytest.raises(
        dg.OperatorFailure,
        match=r"^operator 'counting' failed while combining its states for a barrier: ZeroDivisionError: not these",
    ):
        dg.testing.run(flow, workers=3, chaos=True, rows_max=1)
