"""The controller: who is in the pool, which jobs run on it, and what clients ask of it."""
