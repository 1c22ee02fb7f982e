"""What is missing before `run` can work, and what to do about it: checks of this machine and of a cluster.

* ``check``    the result of a check
* ``machine``  Python, Java, packages, jars, the store, the port of `serve`
* ``cluster``  brokers, topics, rights, telemetry, the tier
* ``coverage`` which sources show the members of each group
* ``tiers``    what further sources would add, and how to switch them on
* ``topics``   the telemetry topics: their settings, their cost, their creation
* ``rights``   the `kafka-acls` commands
"""
