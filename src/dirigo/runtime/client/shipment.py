"""The plan of a dataflow as bytes that any worker can read: the user's code goes along, whatever file it is in.

Functions and classes of installed packages are named; those of the user's own files, imported or not, are sent whole. Sinks
that belong to whoever submits the job stay there: in their place goes one that writes to the results log.
"""

from __future__ import annotations

import functools
import io
import itertools
import pickle
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path, PurePath
from threading import Lock
from types import ModuleType
from typing import Any

import cloudpickle

from dirigo.flow.api.strategy import strategy_of
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.plan.description import describe, written
from dirigo.flow.plan.plan import Plan
from dirigo.flow.sinks.sink import Sink, place_of
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime.control import Manifest
from dirigo.runtime.errors import ControlError
from dirigo.runtime.results.sink import LogSink
from dirigo.runtime.transport.plain_columns import plain_schema
from dirigo.scheduling import Strategy, StrategyLike, name_of

SHIPMENT_BYTES_MOST = 256 << 20
_registry = Lock()  # around the registry of cloudpickle, which is the whole process's


def ship(plan: Plan, name: str) -> bytes:
    """The plan of a flow of this name as bytes."""
    stream = io.BytesIO()
    with _registry, _user_modules_by_value():
        try:
            _Shipper(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(plan)
        except Exception as error:  # pickling runs the user's code
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ControlError(
                f"dataflow '{name}' cannot be sent to the workers ({reason}); keep open files, locks, connections and "
                "generators out of it, and make them inside a function."
            ) from error
    shipment = stream.getvalue()
    if len(shipment) > SHIPMENT_BYTES_MOST:
        raise ControlError(
            f"dataflow '{name}' comes to {len(shipment) >> 20} MiB with all that it holds, and at most "
            f"{SHIPMENT_BYTES_MOST >> 20} can be sent; let its source read the rows from files instead."
        )
    return shipment


def named_shipment(given: StrategyLike) -> tuple[bytes, str]:
    """A strategy as bytes, and its name. Two that are alike give the same bytes."""
    strategy = strategy_of(given)
    return _shipped(strategy), name_of(strategy)


def _shipped(strategy: Strategy) -> bytes:
    stream = io.BytesIO()
    with _registry, _user_modules_by_value():
        try:
            _Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(strategy)
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ControlError(f"the strategy {strategy.name} cannot be sent to the workers ({reason}).") from error
    return stream.getvalue()


def unship(shipment: bytes) -> Plan:
    plan = pickle.loads(shipment)
    assert isinstance(plan, Plan)
    return plan


def manifest_of(job: BoundJob) -> Manifest:
    """What the controller has to know of a job whose code it never runs."""
    sinks: dict[str, tuple[int, bytes]] = {}
    pushed: dict[str, tuple[int, bytes]] = {}
    places: dict[str, str] = {}
    leaves = 0
    for stage in job.plan.stages:
        leaves += sum(not downstreams for downstreams in stage.downstreams)
        operator = stage.operator
        if isinstance(operator, SinkRows) and (place := place_of(operator.sink)) is not None:
            places[operator.name] = place
        if isinstance(operator, SinkRows) and operator.sink.is_outside:
            sinks[operator.name] = (stage.partitions, plain_schema(operator.schema).serialize().to_pybytes())
    for reader in job.readers:
        if isinstance(reader.source, PushedSource):
            splits = pushed.get(reader.operator, (0, b""))[0] + 1
            pushed[reader.operator] = (splits, reader.source.schema.serialize().to_pybytes())
    slo = job.slo
    latency_ms, target = (None, None) if slo is None or slo.latency_ms is None else (slo.latency_ms, slo.target)
    fixed = dict.fromkeys(reader.operator for reader in job.readers if not reader.source.is_replayable)
    return Manifest(
        leaves,
        len(job.plan.addresses),
        sinks,
        pushed,
        latency_ms,
        target,
        job.plan.labels,
        places,
        tuple(fixed),
        len(job.readers),
        written(describe(job.plan)),
        promises_once=any(operator.sink.delivery == "exactly once" for operator in job.sinks()),
    )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Sends functions with a cache as others: pickle itself would only name them."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, functools._lru_cache_wrapper) and not _can_be_named(obj):
            return (_cached, (obj.__wrapped__, obj.cache_parameters()))
        return super().reducer_override(obj)


def _cached(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Callable[..., Any]:
    """A function with a cache of its own, made where it is called."""
    made: Callable[..., Any] = functools.lru_cache(**parameters)(function)
    return made


def _can_be_named(obj: Any) -> bool:
    """Whether others find the same object under its name, in a module that is not sent whole."""
    module = getattr(obj, "__module__", None) or ""
    parents = itertools.accumulate(module.split("."), "{}.{}".format)
    if module == "__main__" or not cloudpickle.list_registry_pickle_by_value().isdisjoint(parents):
        return False
    try:
        return attrgetter(obj.__qualname__)(sys.modules[module]) is obj
    except (AttributeError, KeyError):
        return False


class _Shipper(_Pickler):
    """Pickles what can be pickled elsewhere too."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Sink) and obj.is_outside:
            return (LogSink, (obj.name,))
        if isinstance(obj, PurePath) and not obj.is_absolute():
            return (type(obj), (str(Path(obj).absolute()),))  # workers run in folders of their own
        return super().reducer_override(obj)


@contextmanager
def _user_modules_by_value() -> Iterator[None]:
    registered = []
    known = cloudpickle.list_registry_pickle_by_value()
    for name, module in list(sys.modules.items()):
        # Whatever else is there, an alias or no module at all, cannot be registered.
        is_itself = getattr(module, "__name__", None) == name and isinstance(module, ModuleType)
        if is_itself and name not in known and _is_users_own(module):
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


_INSTALLED = tuple(
    str(Path(folder).resolve()) for folder in {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, sys.exec_prefix}
)
_DIRIGO = str(Path(__file__).resolve().parents[2])


@functools.cache
def _extensions() -> frozenset[str]:
    """Packages that add commands to Dirigo. They are installed where it is, be it from a folder of somebody's own."""
    return frozenset(point.module.partition(".")[0] for point in entry_points(group="dirigo.commands"))


def _is_users_own(module: ModuleType) -> bool:
    """Whether a module lies in the user's own files, where a worker could not import it from."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__":  # which is always sent whole
        return False
    if module.__name__.partition(".")[0] in _extensions():
        return False
    if not file:  # built into Python, or made by a program, and then nobody else can import it
        return getattr(module, "__spec__", None) is None and module.__name__ not in sys.builtin_module_names
    try:
        place = str(Path(file).resolve())
    except OSError:
        return False
    if "site-packages" in place or "dist-packages" in place:
        return False
    return not any(place.startswith(folder + "/") for folder in (*_INSTALLED, _DIRIGO))
