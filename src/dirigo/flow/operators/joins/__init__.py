"""Joins of two streams, or of a stream with a table."""
