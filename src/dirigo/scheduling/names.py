"""Strategies by name, as users give them on the command line and to a cluster."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from dirigo.errors import DirigoError
from dirigo.scheduling.guarded import Guarded
from dirigo.scheduling.strategies.chaos import Chaos
from dirigo.scheduling.strategies.direct_send import DirectSend
from dirigo.scheduling.strategies.direct_send_p2c import DirectSendP2C
from dirigo.scheduling.strategies.direct_send_random import DirectSendRandom
from dirigo.scheduling.strategies.edf import Edf
from dirigo.scheduling.strategies.fifo import Fifo
from dirigo.scheduling.strategies.hybrid import Hybrid
from dirigo.scheduling.strategies.reject_send import RejectSend
from dirigo.scheduling.strategies.reject_send_random import RejectSendRandom
from dirigo.scheduling.strategies.tokens import Tokens
from dirigo.scheduling.strategy import Strategy

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "fifo": Fifo,
    "edf": Edf,
    "reject_send": RejectSend,
    "reject_send_random": RejectSendRandom,
    "direct_send": DirectSend,
    "direct_send_random": DirectSendRandom,
    "direct_send_p2c": DirectSendP2C,
    "tokens": Tokens,
    "hybrid": Hybrid,
    "chaos": Chaos,
}
DEFAULT = "reject_send"

StrategyLike = str | Strategy | type[Strategy]


class StrategyError(DirigoError):
    """Not a strategy."""


def strategy_named(name: str) -> Strategy:
    if name not in STRATEGIES:
        raise StrategyError(
            f"there is no strategy {name!r}; choose {', '.join(STRATEGIES)}, or name your own as module:Class."
        )
    return STRATEGIES[name]()


def name_of(strategy: Strategy) -> str:
    """How a strategy is called: by its name if it has one, or by its class."""
    for name, kind in STRATEGIES.items():
        if type(strategy) is kind:
            return name
    return f"{type(strategy).__module__}:{type(strategy).__qualname__}"


def for_worker(pattern: Strategy) -> Strategy:
    """A copy for one worker; one that is not ours is watched."""
    try:
        strategy = deepcopy(pattern)
    except Exception as error:
        what = f"the strategy {name_of(pattern)} cannot be copied, and each worker needs a copy"
        raise StrategyError(f"{what}: {type(error).__name__}: {error}.") from error
    return strategy if type(strategy).__module__.startswith("dirigo.") else Guarded(strategy)
