"""What a barrier costs, by the number of lessees and the size of their states."""
