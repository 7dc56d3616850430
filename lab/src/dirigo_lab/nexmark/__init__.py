"""Nexmark's queries, by which stream processors are compared, and the oracles that say what the right answers are.

Start reading at ``tables`` (the three streams that a query reads), ``queries`` (one file each) and ``running`` (a query from
its events to its rows); ``oracles`` says what the right answers are.
"""

from dirigo_lab.nexmark.queries import QUERIES, Query
from dirigo_lab.nexmark.run import RunReport, run_query
from dirigo_lab.nexmark.tables import GeneratedTables, ParquetTables, Tables

__all__ = ["QUERIES", "GeneratedTables", "ParquetTables", "Query", "RunReport", "Tables", "run_query"]
