"""The five hooks, and the strategies on them. Pure: no clock, no randomness of their own."""

from dirigo.scheduling.chaos import Chaos, Freedom
from dirigo.scheduling.fifo import Fifo
from dirigo.scheduling.strategy import Strategy

__all__ = ["Chaos", "Fifo", "Freedom", "Strategy"]
