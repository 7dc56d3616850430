"""From the graph that a user wrote to the stages that run, and drawings of it."""
