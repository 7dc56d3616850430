"""How everybody else talks to a cluster, and what a job is sent as."""
