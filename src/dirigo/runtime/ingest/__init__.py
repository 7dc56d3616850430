"""Rows that are pushed into a job from outside: sent, staged on disk, and released at a commit."""
