"""Diagnosis of a connection: why a broker cannot be reached, in one sentence, and what to do about it.

A Kafka client says "unable to bootstrap" for a wrong password, a closed port and a TLS listener alike. `diagnose` takes
the same steps as a client, one at a time, and reports the first one that fails.

* ``problem``   what can be wrong
* ``link``      one connection to one broker, blocking, with a deadline
* ``diagnose``  the steps
* ``listener``  which security protocol a listener speaks
* ``brokers``   the brokers of a cluster
* ``pushes``    whether brokers accept the metrics that clients push
"""

from streaming.connection.diagnose import diagnose
from streaming.connection.problem import ConnectionProblem, Kind

__all__ = ["ConnectionProblem", "Kind", "diagnose"]
