"""The operator around a user's function: its states, its timers, and its calls."""
