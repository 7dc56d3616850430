"""How rows get to their actor: partitions, edges, and the payloads of messages."""
