"""Random runs of larger worlds, compared with a reference that knows the right answer."""
