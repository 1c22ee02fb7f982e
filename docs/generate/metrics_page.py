"""The page `docs/metrics.md`, from the code: `python -m docs.generate.metrics_page`.

A sample store is scraped: every sample line is a true one.
"""

import tempfile
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update

from streaming.config.settings import Settings
from streaming.serve import lag_metrics, metrics
from streaming.serve.health import Health
from streaming.store import Store, tables
from streaming.store.database import database_ms
from tests.support.outputs import (
    CLUSTER,
    START_MS,
    decoded,
    ended,
    finding,
    member,
    partition,
    partitions,
    progress,
    rejected,
    report,
    view,
)

NAMES = {name.removesuffix("_total") for name in metrics.HELP}
PAGE = Path(__file__).parents[1] / "metrics.md"
NOW_MS = START_MS + 2_000
SETTINGS = Settings.model_validate(
    {
        "cluster": CLUSTER,
        "groups": ({"pattern": "orders", "labels": {"team": "shop"}},),
        "serve": {"partition_metrics": True},
    }
)
HEAD = f"""# Metrics

Written by `make docs` from the code; do not edit. `serve` exports these metrics at `/metrics`, together with the usual
`process_*` metrics of its own process.

The number of series is bounded for any fleet. There are totals by cluster, type, state and rule. At most
{metrics.GROUP_SERIES:,} groups (the worst first) have their own series, and so have the
{metrics.MEMBER_SERIES} members that are worst off and those that at most {metrics.REBALANCING_GROUPS} rebalancing
groups wait for. A member id is never a label. Lag has series for at most
{lag_metrics.TOPIC_SERIES:,} topics of these groups and, with `[serve] partition_metrics = true`, for at most
{lag_metrics.PARTITION_SERIES:,} partitions. Unknown values have no sample, never a -1 ([lag](lag.md)). Labels of
`[[groups]]` are added to `{metrics.GROUP_INFO}`. A label's value has at most {metrics.LABEL_CHARACTERS} characters.
The end of a longer one (Kafka accepts ids of 32 KiB) is replaced by `~` and
{metrics.HASH_CHARACTERS} hexadecimal digits of a hash of the whole value, so that two groups stay distinct.

| metric | type | meaning | sample |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{folder}/sample.db")
        fill(store)
        text = metrics.exposition(store, SETTINGS, Health(15_000), lambda: NOW_MS).decode()
        store.close()
    return HEAD + "".join(f"{row}\n" for row in rows(text))


def fill(store: Store) -> None:
    """Give every metric something to tell."""
    worst = member("m-2", heartbeat_headroom=0.21, liveness="violated")
    outputs = [
        report("orders", finding(), view=view() | {"members": [member("m-1"), worst]}),
        report("billing", finding("billing"), ended(finding("billing", "m-2"), START_MS, "refuted")),
        report("shipping", view=view("shipping")),
        progress(held=4),
        decoded(),
        rejected(),
        {"kind": "counted", "cluster": CLUSTER, "counts": {"end-offsets:NotLeaderForPartitionError": 3}},
    ]
    store.apply_batch(
        checkpoint_id="c", batch_id=0, outputs=outputs, settings=SETTINGS, batch_ms=430, now_ms=START_MS + 1_300
    )
    phase = {"phase": "join", "since_ms": NOW_MS - 500, "waiting_for": ["m-1"], "waiting_for_total": 1}
    slow = member("m-1", poll_age_ms=240_000, poll_headroom=0.2)
    outputs = [
        report("payments", view=view("payments", state="PreparingRebalance", rebalance=phase) | {"members": [slow]}),
        report("shipping", view=view("shipping", generation=4) | {"members": [member("m-1")]}),
        partitions("orders", partition(0), partition(1, status="stall", note="stuck"), commits=370),
    ]
    store.apply_batch(checkpoint_id="c", batch_id=1, outputs=outputs, settings=SETTINGS, now_ms=START_MS + 1_300)
    suite = {"cluster": CLUSTER, "suite": "groups", "expectation": "expect_column_values_to_not_be_null(group)"}
    store.write_quality(CLUSTER, [{**suite, "success": True, "checked_ms": NOW_MS, "unexpected": 0, "sample": "[]"}])
    store.outbox.fan_out({"log": ("warn",)})
    first, second = store.outbox.due("log", NOW_MS)[:2]
    store.outbox.attempt([first.id])
    store.outbox.failed([first.id], "answered 400", None)
    store.outbox.done([second.id], NOW_MS)
    with store.engine.begin() as connection:
        connection.execute(update(tables.runs).values(alive_ms=database_ms() + 60_000))


def rows(text: str) -> list[str]:
    """One row a family: the sample is its first line, of a histogram the first that counts."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    made = []
    for family in text_string_to_metric_families(text):
        if family.name not in NAMES:
            continue  # of the process: its numbers are never twice the same
        name = f"{family.name}_total" if family.type == "counter" else family.name
        own = [line for line in lines if line.startswith((f"{name}{{", f"{name} ", f"{name}_bucket"))]
        sample = next((line for line in own if not line.endswith(" 0.0")), own[0] if own else "")
        made.append(f"| `{name}` | {family.type} | {family.documentation} | `{sample}` |")
    return made


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
