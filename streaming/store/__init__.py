"""The SQL database between `run` (writes) and `serve` (reads): the only thing the two share.

* ``tables``         every table, and why each exists
* ``database``       engines, schema creation, dialect-neutral upserts, what a text column may hold
* ``batch``          the job's outputs -> rows; `judge` runs the core's `fold` over the reports
* ``incident_rows``  transitions -> rows of incidents, transitions and outbox
* ``histogram``      durations as bounded counters
* ``lags``           how far behind groups are: rows of partitions, sums by topic
* ``lease``          which `run` writes a cluster
* ``pages``          long lists, read as they are sent
* ``reader``         queries for the API and `/metrics`
* ``outbox``         messages that still have to be delivered
* ``store``          `Store`: one batch, one transaction
"""

from streaming.store.batch import BatchResult
from streaming.store.database import StoreError, look
from streaming.store.store import Store

__all__ = ["BatchResult", "Store", "StoreError", "look"]
