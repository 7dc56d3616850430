"""Dirigo: stateful stream functions that scale one message at a time.

Everything that a user writes with is a name of this package: ``import dirigo as dg``. Names are looked up when they are
first used, so that a tool which needs the kernel alone does not load Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from dirigo import nexmark as nexmark
    from dirigo import testing as testing
    from dirigo.flow import *  # noqa: F403
    from dirigo.runtime.client.client import Client as Client
    from dirigo.runtime.errors import JobFailed as JobFailed
    from dirigo.scheduling import DirectSend as DirectSend
    from dirigo.scheduling import DirectSendP2C as DirectSendP2C
    from dirigo.scheduling import DirectSendRandom as DirectSendRandom
    from dirigo.scheduling import Edf as Edf
    from dirigo.scheduling import Fifo as Fifo
    from dirigo.scheduling import Hybrid as Hybrid
    from dirigo.scheduling import RejectSend as RejectSend
    from dirigo.scheduling import RejectSendRandom as RejectSendRandom
    from dirigo.scheduling import Strategy as Strategy
    from dirigo.scheduling import StrategyExtras as StrategyExtras
    from dirigo.scheduling import Tokens as Tokens
    from dirigo.spark.cluster import Cluster as Cluster
    from dirigo.spark.input.source import from_spark as from_spark
    from dirigo.state import ListState as ListState
    from dirigo.state import MapState as MapState
    from dirigo.state import ValueState as ValueState

_SUBPACKAGES = ("nexmark", "testing")
_HOMES = {
    "Tokens": "dirigo.scheduling",
    "RejectSendRandom": "dirigo.scheduling",
    "RejectSend": "dirigo.scheduling",
    "Hybrid": "dirigo.scheduling",
    "Fifo": "dirigo.scheduling",
    "Edf": "dirigo.scheduling",
    "DirectSendRandom": "dirigo.scheduling",
    "DirectSendP2C": "dirigo.scheduling",
    "DirectSend": "dirigo.scheduling",
    "Client": "dirigo.runtime.client.client",
    "Cluster": "dirigo.spark.cluster",
    "JobFailed": "dirigo.runtime.errors",
    "ListState": "dirigo.state",
    "MapState": "dirigo.state",
    "Strategy": "dirigo.scheduling",
    "StrategyExtras": "dirigo.scheduling",
    "ValueState": "dirigo.state",
    "from_spark": "dirigo.spark.input.source",
}


if not TYPE_CHECKING:  # or a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name in _SUBPACKAGES:
            return import_module(f"dirigo.{name}")
        module = _HOMES.get(name, "dirigo.flow")
        if not name.startswith("_"):
            try:
                return getattr(import_module(module), name)
            except AttributeError:
                pass
            hint = import_module("dirigo.flow.rows.schema").did_you_mean(name, __dir__())
            raise AttributeError(f"module 'dirigo' has no attribute '{name}'{hint}")
        raise AttributeError(f"module 'dirigo' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBPACKAGES, *_HOMES, *import_module("dirigo.flow").__all__})
