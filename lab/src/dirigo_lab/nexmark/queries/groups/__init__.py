"""Queries of windows, keys and ranks: what groups of bids have in common."""
