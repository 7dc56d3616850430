"""Windows, and what is kept of their rows."""
