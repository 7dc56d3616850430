"""Spark out: results of jobs as DataFrames."""
