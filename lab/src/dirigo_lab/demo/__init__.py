"""Tenants that share a pool, for ``dirigo demo``: on Spark, and the same in the simulator."""
