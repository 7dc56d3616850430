"""A strategy as users give it: by name, as an object or a class, or as module:Class of a file of theirs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from dirigo.flow.api.files import importable
from dirigo.scheduling import Strategy, StrategyError, StrategyLike, strategy_named


def strategy_of(given: StrategyLike) -> Strategy:
    """A strategy from its name, from "module:Class" (also of a file in this folder), from a class, or as it is."""
    if isinstance(given, Strategy):
        return given
    if not isinstance(given, str):
        return _made(given, repr(given))
    return _made(_imported(given), given) if ":" in given else strategy_named(given)


def _imported(name: str) -> object:
    module, _, attribute = name.partition(":")
    try:
        with importable(Path.cwd()):
            return getattr(import_module(module), attribute)
    except AttributeError:
        raise StrategyError(f"the module {module!r} has no {attribute!r}; name a class of it as module:Class.") from None
    except Exception as error:  # importing runs the user's code
        raise StrategyError(f"the strategy {name!r} cannot be imported: {type(error).__name__}: {error}.") from error


def _made(kind: object, name: str) -> Strategy:
    if isinstance(kind, Strategy):
        return kind
    if not (isinstance(kind, type) and issubclass(kind, Strategy)):
        raise StrategyError(f"{name} is not a strategy; derive a class from dg.Strategy.")
    try:
        return kind()
    except Exception as error:
        raise StrategyError(f"{name} cannot be made without arguments ({error}); give an object of it instead.") from error
