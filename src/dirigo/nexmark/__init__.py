"""Nexmark: events of an online auction, and the queries that stream processors are compared with.

Start reading at ``generator`` (the events), ``tables`` (the three streams that a query reads), ``queries`` (one file each)
and ``running`` (a query from its events to its rows); ``oracles`` says what the right answers are.
"""

from dirigo.nexmark.generator import Generator
from dirigo.nexmark.queries import QUERIES, Query
from dirigo.nexmark.running import RunReport, run_query
from dirigo.nexmark.sources import auctions, bids, persons
from dirigo.nexmark.tables import GeneratedTables, ParquetTables, Tables

__all__ = [
    "QUERIES",
    "GeneratedTables",
    "Generator",
    "ParquetTables",
    "Query",
    "RunReport",
    "Tables",
    "auctions",
    "bids",
    "persons",
    "run_query",
]
