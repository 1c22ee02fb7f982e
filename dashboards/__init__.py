"""Grafana dashboards and alert rules as code, and the files that are rendered from them.

* ``queries``   PromQL; metric names come from `streaming.serve.metrics` and are never retyped
* ``panels``    our few kinds of panels; ``fleet``, ``group``, ``rebalances``, ``health``: one dashboard each
* ``rules``     alert rules, from which the files for Prometheus and for Grafana are both made
* ``render``    renders all of them to `rendered/`, which is committed, so that a review shows the difference
* ``publish``   writes to a running Grafana; the only module that imports `grafana_api`
"""
