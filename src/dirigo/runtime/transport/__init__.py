"""Bytes between processes: sockets, keys, packets, links that lose nothing. Knows nothing of flows."""
