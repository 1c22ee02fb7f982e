"""`/metrics`: every name is declared, bounded, and tells what the store knows."""

import importlib.metadata
import os
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from coordinator_model.states import GroupState
from streaming.config.settings import Settings
from streaming.serve import metrics
from tests.streaming.serve.conftest import STALLED_MS, sign_of_life
from tests.support.outputs import (
    CLUSTER,
    START_MS,
    decoded,
    ended,
    finding,
    member,
    progress,
    rejected,
    report,
    view,
)


def scrape(client) -> dict[str, dict[tuple, float]]:
    """(sample name -> (sorted labels -> value))."""
    samples: dict[str, dict[tuple, float]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def labels(**values) -> tuple:
    return tuple(sorted(values.items()))


def test_every_declared_metric_is_exported_with_its_help(apply, client):
    apply(progress())
    text = client.get("/metrics").text
    for name, words in metrics.HELP.items():
        family = name.removesuffix("_total") if "_total" in name else name
        assert f"# HELP {name} {words}" in text or f"# HELP {family} {words}" in text


def test_groups_and_members_are_summed_up(apply, client):
    members = [member("a"), member("b", liveness="violated", heartbeat_headroom=0.25), member("c", liveness="unknown")]
    apply(report(view=view() | {"members": members}), report("idle", view=view("idle", members=0, state="Empty")))
    samples = scrape(client)
    by = {"cluster": CLUSTER, "type": "classic"}
    assert samples[metrics.GROUPS] == {labels(**by, state="Stable"): 1, labels(**by, state="Empty"): 1}
    assert samples[metrics.MEMBERS][labels(**by, state="Stable", liveness="violated")] == 1
    assert samples[metrics.MEMBERS][labels(**by, state="Stable", liveness="alive")] == 1
    group = labels(cluster=CLUSTER, group="orders")
    assert samples[metrics.GROUP_MEMBERS][group] == 3
    assert samples[metrics.GROUP_GENERATION][group] == 3
    assert samples[metrics.GROUP_HEADROOM] == {group: 0.25}
    info = labels(cluster=CLUSTER, group="orders", type="classic", state="Stable", team="shop")
    assert samples[metrics.GROUP_INFO][info] == 1


def test_a_state_is_a_number_beside_the_info_series_and_stays_one_series(apply, client):
    """A label that changes makes a new series each time: a rebalancing group has five of `_info`."""
    group = labels(cluster=CLUSTER, group="orders")
    for number, state in enumerate(GroupState):
        apply(report(view=view(state=state.value)))
        assert scrape(client)[metrics.GROUP_STATE] == {group: number}
        assert f"{number} {state.value}" in metrics.HELP[metrics.GROUP_STATE]
    apply(report(view=view(state="SomethingNew")))
    assert metrics.GROUP_STATE not in scrape(client)


def test_serve_says_which_build_it_is_and_what_its_process_takes(client):
    samples = scrape(client)
    (build,) = samples[metrics.BUILD_INFO].items()
    assert build == (labels(version=importlib.metadata.version("kafka-group-monitor")), 1)
    (started_s,) = samples["process_start_time_seconds"].values()
    assert abs(started_s - began_s()) < 60
    assert samples["process_resident_memory_bytes"][()] > 10_000_000
    assert samples["process_cpu_seconds_total"][()] > 0
    assert samples["process_open_fds"][()] > 3


def began_s() -> float:
    """When this process began, which is the one that serves here, by the clock that counts since the boot.

    The times of the folder /proc/PID do not tell it: they are those of the first look at the folder.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    began_after_boot_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # `starttime`, see proc_pid_stat(5)
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - began_after_boot_s)


def test_incidents_are_counted_by_rule(apply, client):
    apply(report("orders", finding(), finding(member="m-2")), now_ms=START_MS + 1_200)
    apply(report("orders", finding(), ended(finding(member="m-2"), START_MS + 9_000, "refuted")))
    samples = scrape(client)
    rule = {"cluster": CLUSTER, "rule": "session-expired"}
    assert samples[metrics.INCIDENTS_OPEN] == {labels(**rule, severity="warn"): 1}
    assert samples[metrics.INCIDENTS_OPENED][labels(**rule)] == 2
    assert samples[metrics.INCIDENTS_CLOSED] == {labels(**rule, reason="refuted"): 1}
    assert samples[metrics.INCIDENTS_REFUTED] == {labels(cluster=CLUSTER): 1}
    delay = samples[f"{metrics.DETECTION_DELAY}_bucket"]
    assert delay[labels(cluster=CLUSTER, le="1.0")] == 0
    assert delay[labels(cluster=CLUSTER, le="1.5")] == 2
    assert samples[f"{metrics.DETECTION_DELAY}_count"] == {labels(cluster=CLUSTER): 2}
    assert samples[f"{metrics.DETECTION_DELAY}_sum"] == {labels(cluster=CLUSTER): 2.4}


def test_a_group_says_which_rules_are_broken_and_since_when(apply, client):
    apply(report("orders", finding(opened_ms=START_MS + 500), finding(member="m-2")), report("idle", view=view("idle")))
    samples = scrape(client)
    broken = labels(cluster=CLUSTER, group="orders", rule="session-expired", severity="warn")
    assert samples[metrics.GROUP_INCIDENTS] == {broken: 2}
    assert samples[metrics.GROUP_INCIDENT_OPENED] == {broken: START_MS / 1_000}


def test_an_incident_that_is_only_recorded_is_open_and_told_to_nobody(store, client):
    """The alert rules page about those that are told."""
    tried = Settings.model_validate({"cluster": CLUSTER, "groups": ({"pattern": "tried", "mode": "record"},)})
    found = [report(group, finding(group, severity="page")) for group in ("orders", "tried")]
    store.apply_batch(checkpoint_id="c", batch_id=0, outputs=found, settings=tried)
    samples = scrape(client)
    assert {dict(series)["group"] for series in samples[metrics.GROUP_INCIDENTS]} == {"orders", "tried"}
    assert {dict(series)["group"] for series in samples[metrics.GROUP_INCIDENTS_TOLD]} == {"orders"}


def test_what_grows_from_nothing_is_0_before(apply, client):
    """Prometheus sees no growth in a series that begins with a burst."""
    apply(progress())
    first = scrape(client)
    apply(*(rejected(offset, reason=f"reason-{offset % 2}") for offset in range(300)), report("orders", finding()))
    then, cluster = scrape(client), labels(cluster=CLUSTER)
    opened = labels(cluster=CLUSTER, rule="session-expired")
    assert [scraped[metrics.INCIDENTS_OPENED][opened] for scraped in (first, then)] == [0, 1]
    assert [scraped[metrics.ROWS_REJECTED][cluster] for scraped in (first, then)] == [0, 300]


def test_a_fleet_in_trouble_shows_its_worst_incidents_first(apply, client, monkeypatch):
    monkeypatch.setattr(metrics, "GROUP_SERIES", 2)
    apply(
        report("info", finding("info", severity="info")),
        report("late", finding("late", opened_ms=START_MS + 1)),
        report("early", finding("early")),
        report("page", finding("page", severity="page", opened_ms=START_MS + 2)),
    )
    assert {dict(series)["group"] for series in scrape(client)[metrics.GROUP_INCIDENTS]} == {"page", "early"}


def test_sources_run_and_outbox_are_told(apply, client, store):
    apply(progress(held=4), rejected(), report("orders", finding(), view=view()), batch_ms=400)
    sign_of_life(store, age_ms=2 * STALLED_MS)
    samples = scrape(client)
    cluster, broker = labels(cluster=CLUSTER), labels(cluster=CLUSTER, broker="broker-1")
    assert samples[metrics.TELEMETRY_DELAY] == {broker: 0.12}
    assert samples[metrics.HELD_ROWS] == {cluster: 4}
    assert samples[metrics.BROKER_COVERED] == {broker: 1}
    assert samples[metrics.INGESTED] == {labels(cluster=CLUSTER, outcome="heartbeats"): 10}
    assert samples[metrics.QUARANTINED] == {labels(cluster=CLUSTER, source="telemetry", reason="cut"): 1}
    assert samples[metrics.GENERATIONS] == {labels(cluster=CLUSTER, cause="first-seen"): 1}
    assert samples[f"{metrics.BATCH_DURATION}_bucket"][labels(cluster=CLUSTER, le="0.5")] == 1
    assert samples[metrics.OUTBOX_PENDING] == {labels(receiver=""): 1}
    assert samples[metrics.STALLED] == {cluster: 1}
    assert samples[metrics.RUN_ALIVE_AGE][cluster] >= 2 * STALLED_MS / 1_000
    sign_of_life(store)
    assert scrape(client)[metrics.STALLED] == {cluster: 0}


def test_records_are_counted_by_type_version_and_outcome(apply, client):
    """Burrow logs each record that it cannot decode and counts none."""
    apply(decoded(**{"GroupMetadata:3:decoded": 5, "OffsetCommit::tombstone": 2}))
    apply(decoded(**{"GroupMetadata:3:decoded": 1, "OffsetCommit:unknown:unknown-version": 4}))
    by = {"cluster": CLUSTER}
    assert scrape(client)[metrics.DECODED] == {
        labels(**by, type="GroupMetadata", version="3", outcome="decoded"): 6,
        labels(**by, type="OffsetCommit", version="", outcome="tombstone"): 2,
        labels(**by, type="OffsetCommit", version="unknown", outcome="unknown-version"): 4,
    }


def test_partitions_without_an_end_offset_are_counted_by_error(apply, client):
    for _ in range(2):
        apply({"kind": "counted", "cluster": CLUSTER, "counts": {"end-offsets:NotLeaderForPartitionError": 3}})
    by = {"cluster": CLUSTER, "error": "NotLeaderForPartitionError"}
    assert scrape(client)[metrics.END_OFFSETS_UNANSWERED] == {labels(**by): 6}


def test_a_group_that_is_deleted_keeps_no_series(apply, client):
    """Exporters of others keep series of deleted groups, which alert on (Burrow #758, jirwin/burrow_exporter#17)."""
    apply(report("orders", finding(), view=view()))
    assert 'group="orders"' in client.get("/metrics").text
    apply(report("orders", deleted=True, at_ms=START_MS + 1_000))
    assert 'group="orders"' not in client.get("/metrics").text


def test_a_fleet_gets_a_bounded_number_of_series_those_in_trouble_first(apply, client, monkeypatch):
    monkeypatch.setattr(metrics, "GROUP_SERIES", 3)
    apply(
        *(report(f"big{number}", view=view(f"big{number}", members=5)) for number in range(5)),
        report("bad", view=view("bad") | {"members": [member("x", heartbeat_headroom=0.0)]}),
        report("busy", finding("busy"), view=view("busy", state="PreparingRebalance")),
    )
    samples = scrape(client)
    assert len(samples[metrics.GROUP_MEMBERS]) == 3
    assert {labels(cluster=CLUSTER, group=group) for group in ("bad", "busy")} <= samples[metrics.GROUP_MEMBERS].keys()
    assert samples[metrics.GROUPS_WITHOUT_SERIES] == {(): 4}


def test_a_hostile_name_cannot_break_the_format(apply, client):
    evil = 'a"} 1\nfake_metric{x="\\'
    apply(report(evil, view=view(evil)), rejected(reason=evil), progress(counts={evil: 1}))
    samples = scrape(client)
    assert "fake_metric" not in samples
    assert samples[metrics.GROUP_MEMBERS] == {labels(cluster=CLUSTER, group=evil): 1}


def test_a_label_has_an_end_and_two_long_ids_stay_two(apply, client):
    names = [f"{'g' * 32_000}{end}" for end in ("a", "b")]
    for name in names:
        long = member("m-1", client_id=name, client_host=name, heartbeat_headroom=0.1)
        waiting = {"phase": "join", "since_ms": START_MS, "waiting_for": ["m-1"], "waiting_for_total": 1}
        shown = view(name, state="PreparingRebalance", rebalance=waiting) | {"members": [long]}
        apply(report(name, finding(name, rule=f"rule-{name[-1]}"), view=shown))
    text = client.get("/metrics").text
    assert max(len(line) for line in text.splitlines()) < 4 * metrics.LABEL_CHARACTERS + 500
    samples = scrape(client)
    groups = {dict(found)["group"] for found in samples[metrics.GROUP_MEMBERS]}
    assert len(groups) == 2
    assert {len(group) for group in groups} == {metrics.LABEL_CHARACTERS}
    for family in (metrics.GROUP_INFO, metrics.MEMBER_HEADROOM, metrics.WAITED_FOR, metrics.GROUP_INCIDENTS):
        assert {dict(found)["group"] for found in samples[family]} == groups


def test_the_page_of_metrics_is_the_codes_and_shows_a_sample_of_each():
    """`make docs` writes it."""
    from docs.generate import metrics_page as metrics_table

    page = metrics_table.page()
    assert page == metrics_table.PAGE.read_text(encoding="utf-8")
    for name in metrics.HELP:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{name}`"))
        assert not row.endswith("`` |"), f"no sample of {name}"


def test_only_the_members_worst_off_have_a_series_and_none_by_its_id(apply, client, monkeypatch):
    monkeypatch.setattr(metrics, "MEMBER_SERIES", 2)
    members = [member(f"id-{n}", client_id=f"c{n}", heartbeat_headroom=(9 - n) / 10) for n in range(5)]
    twin = member("id-9", client_id="c4", heartbeat_headroom=0.1)
    apply(report(view=view() | {"members": [*members, twin]}), report("a", view=view("a", members=0)))
    assert scrape(client)[metrics.MEMBER_HEADROOM] == {
        labels(cluster=CLUSTER, group="orders", client_id="c4", client_host="10.0.0.7"): 0.1,
        labels(cluster=CLUSTER, group="orders", client_id="c3", client_host="10.0.0.7"): 0.6,
    }
    assert "id-" not in client.get("/metrics").text


def test_poll_headroom_is_told_of_those_whose_clients_tell_it(apply, client, monkeypatch):
    monkeypatch.setattr(metrics, "MEMBER_SERIES", 2)
    silent = member("id-0", client_id="silent")
    members = [silent, *(member(f"id-{n}", client_id=f"c{n}", poll_headroom=n / 10) for n in range(1, 5))]
    apply(report(view=view() | {"members": members}), report("silent", view=view("silent")))
    samples = scrape(client)
    host = {"cluster": CLUSTER, "client_host": "10.0.0.7"}
    assert samples[metrics.GROUP_POLL_HEADROOM] == {labels(cluster=CLUSTER, group="orders"): 0.1}
    assert samples[metrics.MEMBER_POLL_HEADROOM] == {
        labels(**host, group="orders", client_id="c1"): 0.1,
        labels(**host, group="orders", client_id="c2"): 0.2,
    }
    assert "id-" not in client.get("/metrics").text


def test_a_rebalance_tells_its_phase_and_whom_it_waits_for_as_long_as_it_goes_on(apply, client, monkeypatch):
    monkeypatch.setattr(metrics, "REBALANCING_GROUPS", 2)

    def busy(group, state, phase, *awaited, members=3):
        told = {"phase": phase, "since_ms": START_MS - 7_500, "waiting_for": list(awaited), "waiting_for_total": 9}
        return report(group, view=view(group, members=members, state=state, rebalance=told))

    apply(
        busy("orders", "PreparingRebalance", "join", "m-0", "m-1"),
        busy("modern", "Reconciling", "reconciliation", "m-2"),
        busy("small", "CompletingRebalance", "sync", "m-0", members=1),
        report("still", view=view("still", members=9, rebalance=None)),
    )
    samples = scrape(client)
    since = (START_MS - 7_500) / 1_000
    assert samples[metrics.PHASE_STARTED] == {
        labels(cluster=CLUSTER, group="orders", phase="join"): since,
        labels(cluster=CLUSTER, group="modern", phase="reconciliation"): since,
    }
    who = {"cluster": CLUSTER, "client_id": "worker", "client_host": "10.0.0.7"}
    assert samples[metrics.WAITED_FOR] == {labels(**who, group="orders"): 2, labels(**who, group="modern"): 1}
    apply(report(view=view(generation=4, rebalance=None)), report("modern", deleted=True))
    assert {dict(series)["group"] for series in scrape(client)[metrics.PHASE_STARTED]} == {"small"}


def test_partitions_that_move_are_counted(apply, client, monkeypatch):
    """The groups that rebalanced last have a series of their own."""
    monkeypatch.setattr(metrics, "NEWEST_GENERATIONS", 2)

    def owned(group, generation, *owners):
        members = [
            member(f"m-{owner}", assignment=[{"topic": "orders", "partitions": [number]}])
            for number, owner in enumerate(owners)
        ]
        made = view(group, generation=generation, stable_since_ms=START_MS + generation)
        return report(group, view=made | {"members": members})

    apply(owned("orders", 3, 1, 2, 3), owned("older", 1, 1))
    assert scrape(client)[metrics.PARTITIONS_MOVED] == {labels(cluster=CLUSTER): 0}
    apply(owned("orders", 4, 2, 3, 1))
    apply(owned("orders", 5, 2, 1, 3))
    samples = scrape(client)
    assert samples[metrics.PARTITIONS_MOVED] == {labels(cluster=CLUSTER): 5}
    assert samples[metrics.GROUP_MOVED] == {labels(cluster=CLUSTER, group="orders"): 2}


def test_errors_of_the_store_are_counted_and_refusals_are_not(store, client):
    from sqlalchemy import insert, text
    from sqlalchemy.exc import SQLAlchemyError

    from streaming.store import tables

    lease = {"name": "x", "holder": "", "renewals": 0}
    for statement, times in ((text("SELECT nonsense FROM nowhere"), 1), (insert(tables.leases).values(lease), 2)):
        for _ in range(times):
            try:
                with store.engine.begin() as connection:
                    connection.execute(statement)
            except SQLAlchemyError:
                continue
    assert scrape(client)[metrics.STORE_ERRORS] == {(): 1}
