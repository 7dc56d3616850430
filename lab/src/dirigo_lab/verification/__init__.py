"""How we know that the protocol is right: an explorer of small worlds, random runs of larger ones, and mutants.

Start at ``worlds`` (what is asked) and ``checker`` (what must hold); ``explorer`` and ``random_run`` put the two together.
"""
