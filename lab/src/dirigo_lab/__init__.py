"""The laboratory: how Dirigo is verified, measured and compared. Users of Dirigo need none of it."""

__version__ = "0.2.0.dev0"
