"""The same kernel in real time: workers that talk over sockets, a controller that looks after them, and its clients.

Nothing here knows Spark: a worker is a function that runs until it is stopped (``worker_process.run_worker``), and whoever
likes may host it. Start reading at ``worker_process`` and ``controller``; what they say to each other is in ``control``.
"""
