"""Rows: schemas, batches, rows as Python objects, bad rows, and the memory that they take."""
