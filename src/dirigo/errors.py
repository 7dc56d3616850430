"""The base of all errors that Dirigo raises for its users. It lies below everything else: every part derives from it."""

from __future__ import annotations


class DirigoError(Exception):
    """Base of all errors of Dirigo; its text is one sentence that says what is wrong, and mostly what to do."""
