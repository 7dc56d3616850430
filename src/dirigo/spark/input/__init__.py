"""Spark in: DataFrames as sources of jobs."""
