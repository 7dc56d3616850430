"""Queries that join streams, or a stream with a table."""
