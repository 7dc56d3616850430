"""A whole cluster in one thread: the explorer of small worlds, random runs of larger ones, and a timed simulator."""
