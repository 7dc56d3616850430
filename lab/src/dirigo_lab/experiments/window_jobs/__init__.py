"""The windowed jobs that experiments run: in the simulator, and on Spark."""
