"""Our figures under the names and labels of other exporters: their users' dashboards and alerts work unedited.

* ``text``            samples gathered by family while groups are read, and written in Prometheus' text format
* ``reading``         what all exporters need: groups, lags, newest offsets of partitions
* ``kminion``         redpanda-data/kminion
* ``kafka_exporter``  danielqsj/kafka_exporter
* ``burrow``          linkedin/Burrow's own metrics, and jirwin/burrow_exporter's
* ``endpoints``       `/metrics/<exporter>`

Names, labels and values were looked up in those projects; what differs is in `docs/migrating.md`.
"""
