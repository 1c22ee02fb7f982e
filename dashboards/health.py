"""*Monitor health*: whether the other dashboards can be trusted."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import queries
from dashboards.panels import (
    ANY_IS_BAD,
    GREEN,
    ORANGE,
    RED,
    Look,
    Query,
    board,
    buckets,
    cluster_variable,
    number,
    series,
    timeline,
)
from streaming.serve import lag_metrics, metrics

NAME = "health"
YES_IS_GOOD = Look(words={"1": ("yes", GREEN), "0": ("no", RED)})
YES_IS_BAD = Look(words={"0": ("no", GREEN), "1": ("yes", RED)})
SECONDS_LATE = Look("s", ((None, GREEN), (2.5, ORANGE), (10, RED)), low=0)


def build() -> Dashboard:
    """Build the dashboard."""
    return board(
        NAME,
        "Consumer groups: monitor health",
        "Whether the monitor hears every broker, keeps up, and gets its alerts delivered.",
        variables=(cluster_variable(),),
        incidents=f'{queries.IN_CLUSTER}, severity="page"',
        rows={"Now": _now(), "Telemetry": _telemetry(), "The job": _job(), "Lag": _lag(), "Alerts": _alerts()},
    )


def _now() -> list[object]:
    def worst(metric: str, function: str = "max") -> str:
        return f"{function}({metric}{{{queries.IN_CLUSTER}}})"

    return [
        number(
            "Stalled", "Whether any run has given no sign of life for too long.", worst(metrics.STALLED), YES_IS_BAD
        ),
        number(
            "Caught up",
            "Whether every run has read what was there when it started.",
            worst(metrics.RUN_CAUGHT_UP, "min"),
            YES_IS_GOOD,
        ),
        number(
            "All brokers covered",
            "Whether no broker's telemetry is known to have a gap.",
            worst(metrics.BROKER_COVERED, "min"),
            YES_IS_GOOD,
        ),
        number(
            "Slowest shard",
            "How far the newest instant judged lies behind the clock.",
            worst(metrics.SHARD_PROGRESS_AGE),
            SECONDS_LATE,
        ),
        number(
            "Verdicts refuted",
            "Incidents in the time shown that the broker later proved wrong; the goal is zero.",
            f"sum({queries.increase(metrics.INCIDENTS_REFUTED, 'cluster')}) or vector(0)",
            Look(steps=ANY_IS_BAD),
        ),
        number(
            "Groups without series",
            "Groups that only the totals count: the bound on series is reached.",
            f"max({metrics.GROUPS_WITHOUT_SERIES})",
            Look(steps=((None, GREEN), (1, ORANGE))),
        ),
    ]


def _telemetry() -> list[object]:
    by = ("cluster", "broker")
    name = "{{cluster}} {{broker}}"
    delay = queries.total(metrics.TELEMETRY_DELAY, *by, function="max")
    age = queries.total(metrics.BROKER_PROGRESS_AGE, *by, function="max")
    covered = queries.total(metrics.BROKER_COVERED, *by, function="min")
    held = queries.total(metrics.HELD_ROWS, "cluster")
    return [
        timeline(
            "Brokers covered",
            "no: a line of that broker is known to be missing, or its timers restarted at an unknown instant.",
            Query(covered, name),
            YES_IS_GOOD,
        ),
        series(
            "Telemetry delay",
            "How old the newest line of a broker was as it was read; its probe makes two a second.",
            Query(delay, name),
            look=Look("s", low=0),
        ),
        series(
            "Age of a broker's newest line",
            "A probe asks twice a second, so seconds mean a broker, its appender or the topic is in trouble.",
            Query(age, name),
            look=SECONDS_LATE,
        ),
        series(
            "Rows held back",
            "Rows that wait for a slower source so that the order stays right.",
            Query(held, "{{cluster}}"),
        ),
        series(
            "Rows quarantined",
            "Rows that could not be understood, a second, by source and reason.",
            Query(queries.rate(metrics.QUARANTINED, "source", "reason"), "{{source}}: {{reason}}"),
            look=Look("cps"),
        ),
    ]


def _job() -> list[object]:
    batch = (
        Query(queries.quantile(metrics.BATCH_DURATION, share), f"p{share * 100:.0f} {{{{cluster}}}}")
        for share in (0.5, 0.99)
    )
    quality = f"bottomk(30, {queries.total(metrics.QUALITY, 'suite', 'expectation', function='min')})"
    alive = queries.total(metrics.RUN_ALIVE_AGE, "cluster", function="max")
    return [
        series(
            "Batch duration",
            "From end to end; above the trigger's interval the job falls behind.",
            *batch,
            look=Look("s", low=0),
        ),
        buckets("Batch durations", "Batches by duration.", metrics.BATCH_DURATION, queries.IN_CLUSTER),
        series(
            "Rows and records read",
            "A second, by outcome.",
            Query(queries.rate(metrics.INGESTED, "outcome"), "{{outcome}}"),
            look=Look("cps"),
            stacked=True,
            span=8,
        ),
        series(
            "Records decoded",
            "A second, by type, version and outcome; all but decoded and tombstone lie in the quarantine.",
            Query(queries.rate(metrics.DECODED, "type", "version", "outcome"), "{{type}} {{version}} {{outcome}}"),
            look=Look("cps"),
            stacked=True,
            span=8,
        ),
        series(
            "Age of the newest sign of life",
            "monitor-stalled is raised when it grows too old.",
            Query(alive, "{{cluster}}"),
            look=Look("s", ((None, GREEN), (15, RED)), low=0),
            span=8,
        ),
        timeline(
            "Data quality",
            "What is expected of the data as a whole, as of the last check; those not met come first.",
            Query(quality, "{{suite}}: {{expectation}}"),
            YES_IS_GOOD,
            height=9,
        ),
    ]


def _lag() -> list[object]:
    age = queries.total(lag_metrics.LAG_AGE, "cluster", function="max")
    left_out = f"max by (of) ({lag_metrics.LAGS_WITHOUT_SERIES})"
    return [
        series(
            "Age of the newest lag",
            "When the end offsets of a cluster were asked, which happens every 10 seconds.",
            Query(age, "{{cluster}}"),
            look=Look("s", ((None, GREEN), (30, ORANGE), (60, RED)), low=0),
        ),
        series(
            "Lags without series",
            "Groups and topics beyond the bounds on series; the API has them.",
            Query(left_out, "{{of}}"),
            look=Look(steps=((None, GREEN), (1, ORANGE)), low=0),
        ),
    ]


def _alerts() -> list[object]:
    delay = (
        Query(queries.quantile(metrics.DETECTION_DELAY, share), f"p{share * 100:.0f} {{{{cluster}}}}")
        for share in (0.5, 0.99)
    )
    return [
        series("Detection delay", "From a deadline to the incident in the outbox.", *delay, look=SECONDS_LATE),
        series(
            "Incidents closed, by reason",
            "A second; refuted ones were wrong.",
            Query(queries.rate(metrics.INCIDENTS_CLOSED, "reason"), "{{reason}}"),
            look=Look("cps"),
            stacked=True,
        ),
        *_outbox(),
        *_serve(),
    ]


def _outbox() -> list[object]:
    def by_receiver(metric: str) -> Query:
        return Query(f"max by (receiver) ({metric})", "{{receiver}}")

    return [
        series(
            "Messages not delivered",
            "By receiver; without a name: not taken yet.",
            by_receiver(metrics.OUTBOX_PENDING),
            span=8,
        ),
        series(
            "Oldest message not delivered",
            "A receiver that does not answer shows here first.",
            by_receiver(metrics.OUTBOX_AGE),
            look=Look("s", ((None, GREEN), (60, ORANGE), (300, RED)), low=0),
            span=8,
        ),
        series(
            "Messages given up",
            "The receiver refused them for good.",
            by_receiver(metrics.OUTBOX_DEAD),
            look=Look(steps=ANY_IS_BAD),
            span=8,
        ),
    ]


def _serve() -> list[object]:
    return [
        series(
            "Instances that send",
            "One of the serves that share a database sends; none means that nobody does, two that both do.",
            Query(f"sum({metrics.LEADER})", "senders"),
            look=Look(steps=((None, RED), (1, GREEN), (2, RED)), low=0),
        ),
        series(
            "Store errors",
            "Times a second that a serve could not read or write its database.",
            Query(f"sum by (instance) (rate({metrics.STORE_ERRORS}[$__rate_interval]))", "{{instance}}"),
            look=Look("cps", ANY_IS_BAD, low=0),
        ),
    ]
