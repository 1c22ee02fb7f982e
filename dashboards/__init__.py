"""How the truth is seen: Grafana dashboards and alert rules as code, and what is rendered from them.

* ``queries``   PromQL over the names in `streaming.serve.metrics`, never retyped
* ``panels``    our few panel shapes; ``fleet``, ``group``, ``rebalances``, ``health``: a dashboard each
* ``rules``     alert rules, once; Prometheus' and Grafana's files are both made from them
* ``render``    everything above as text; `rendered/` holds it, committed, so that a review sees the difference
* ``publish``   to a running Grafana; the only importer of `grafana_api`
"""
