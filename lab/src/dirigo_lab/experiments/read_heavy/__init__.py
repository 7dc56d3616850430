"""Reads of a state as barriers, or as ordinary messages on a replica."""
