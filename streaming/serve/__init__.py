"""The server for people and Prometheus: HTTP API, page, `/metrics` and the notifier. It reads only SQL, without Spark.

* ``health``    whether every `run` has caught up and makes progress
* ``metrics``   every metric, declared once, computed from the store at scrape
* ``lag_metrics`` the metrics of lag; ``lag_view``: lag for the page of a group
* ``exporters`` our figures under other exporters' names
* ``api``       JSON; ``page``: HTML for people; ``app``: routes and security headers
* ``notify``    outbox -> Alertmanager, webhook, log; one module per receiver
* ``maintenance`` regular work: fan-out, `monitor-stalled`, retention
* ``server``    runs everything above as one process that stops cleanly
"""
