"""Rows out of files."""
