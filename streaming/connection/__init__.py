"""Why a broker can't be reached: found in small steps, said in one sentence, with what to do next.

A Kafka client says "unable to bootstrap" for a wrong password, a closed port and a TLS listener alike. `diagnose` takes
the same steps one at a time and reports the first that fails.

* ``problem``   what can be wrong
* ``link``      one connection to one broker, blocking, with a deadline
* ``diagnose``  the steps
* ``brokers``   who is there, where a broker can be reached
"""

from streaming.connection.diagnose import diagnose
from streaming.connection.problem import ConnectionProblem, Kind

__all__ = ["ConnectionProblem", "Kind", "diagnose"]
