"""Dirigo: a stream-processing service whose stateful functions scale one message at a time."""

__version__ = "0.1.0"
