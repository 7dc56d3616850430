"""Experiments: several jobs on one pool, run under one strategy after another, and what came of it."""
