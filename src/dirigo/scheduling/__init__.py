"""The five hooks, the strategies on them, and the account of what they achieve. Pure: no clock, no chance of their own."""

from dirigo.kernel import StrategyExtras
from dirigo.scheduling.arbiter import Arbiter, StrategyFailure
from dirigo.scheduling.names import DEFAULT, STRATEGIES, StrategyError, StrategyLike, for_worker, name_of, strategy_named
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

__all__ = [
    "DEFAULT",
    "STRATEGIES",
    "Arbiter",
    "Chaos",
    "DirectSend",
    "DirectSendP2C",
    "DirectSendRandom",
    "Edf",
    "Fifo",
    "Hybrid",
    "RejectSend",
    "RejectSendRandom",
    "Strategy",
    "StrategyError",
    "StrategyExtras",
    "StrategyFailure",
    "StrategyLike",
    "Tokens",
    "for_worker",
    "name_of",
    "strategy_named",
]
