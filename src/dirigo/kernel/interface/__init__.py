"""What everybody else sees of the kernel: addresses, messages, functions, hooks, objectives and errors."""
