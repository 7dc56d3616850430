"""Crashes of simulated flows, and whether they recover from them."""
