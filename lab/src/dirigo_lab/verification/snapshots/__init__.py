"""Snapshots in the explorer: barriers at every point of every script, what was captured, and what comes of that."""
