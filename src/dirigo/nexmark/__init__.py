"""Nexmark: generated events of an online auction, as sources to write and test flows with.

Start reading at ``generator`` (the events) and ``sources`` (a stream for each kind of event). Its queries, and what they are
compared with, are in the laboratory.
"""

from dirigo.nexmark.generator import Generator
from dirigo.nexmark.sources import auctions, bids, persons

__all__ = ["Generator", "auctions", "bids", "persons"]
