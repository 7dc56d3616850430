"""Dirigo: stateful stream functions that scale one message at a time.

Everything that a user writes with is a name of this package: ``import dirigo as dg``. Names are looked up when they are
first used, so that a tool which needs the kernel alone does not load Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dirigo import nexmark as nexmark
    from dirigo import testing as testing
    from dirigo.flow import *  # noqa: F403
    from dirigo.scheduling import Strategy as Strategy
    from dirigo.state import ListState as ListState
    from dirigo.state import MapState as MapState
    from dirigo.state import ValueState as ValueState

_SUBPACKAGES = ("nexmark", "testing")
_STATES = ("ListState", "MapState", "ValueState")


if not TYPE_CHECKING:  # or a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name in _SUBPACKAGES:
            return import_module(f"dirigo.{name}")
        module = "dirigo.state" if name in _STATES else "dirigo.scheduling" if name == "Strategy" else "dirigo.flow"
        if not name.startswith("_"):
            try:
                return getattr(import_module(module), name)
            except AttributeError:
                pass
            hint = import_module("dirigo.flow.schema").did_you_mean(name, __dir__())
            raise AttributeError(f"module 'dirigo' has no attribute '{name}'{hint}")
        raise AttributeError(f"module 'dirigo' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBPACKAGES, *_STATES, "Strategy", *import_module("dirigo.flow").__all__})
