"""A whole cluster in one thread and virtual time; and, in ``verification``, the protocol explored and put to the test."""
