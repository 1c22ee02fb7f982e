"""Captures: files with what the monitor reads of a cluster, so that it can be replayed elsewhere.

* ``file``          the format, and how captures are read
* ``recorder``      records topics of a cluster: the command `capture`
* ``writer``        writes the rows, also into a compressed file
* ``cluster_rows``  what a replay needs besides Kafka's rows: leaders, session timeouts, names of topics
"""
