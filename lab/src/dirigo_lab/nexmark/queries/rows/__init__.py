"""Queries that look at each bid alone."""
