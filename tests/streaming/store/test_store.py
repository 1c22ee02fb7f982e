"""The store on real databases: a batch counts once or not at all, and nothing a stranger says can stop it."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select, text, update

from streaming.config.settings import MOST, Settings
from streaming.store import Store, StoreError, tables
from streaming.store.batch import CheckpointMismatchError
from streaming.store.database import database_ms
from streaming.store.lease import Lease
from streaming.store.store import DAY_MS, wall_ms
from tests.support.outputs import (
    CLUSTER,
    START_MS,
    ended,
    finding,
    member,
    partitions,
    progress,
    rejected,
    report,
    view,
)

SETTINGS = Settings.model_validate(
    {
        "cluster": CLUSTER,
        "groups": (
            {"pattern": "silent", "mode": "off"},
            {"pattern": "quiet", "mode": "record"},
            {"pattern": "orders", "labels": {"team": "shop"}, "runbook_url": "https://runbooks/orders"},
        ),
    }
)


@pytest.fixture
def url(url, tmp_path) -> str:
    """Each kind of database; the folder of the file does not exist yet."""
    return url.replace(str(tmp_path), f"{tmp_path}/folder")


@pytest.fixture
def store(url) -> Iterator[Store]:
    opened = Store.open(url)
    yield opened
    opened.close()


class Job:
    """Applies batches one after the other, as the job does."""

    def __init__(self, store: Store, checkpoint_id: str = "c-1") -> None:
        self.store = store
        self.checkpoint_id = checkpoint_id
        self.batch_id = -1

    def apply(self, *outputs, **arguments):
        self.batch_id += 1
        return self.again(*outputs, **arguments)

    def again(self, *outputs, **arguments):
        arguments = {"now_ms": START_MS + 2_000, "settings": SETTINGS, **arguments}
        return self.store.apply_batch(
            checkpoint_id=self.checkpoint_id, batch_id=self.batch_id, outputs=outputs, **arguments
        )


@pytest.fixture
def job(store) -> Job:
    return Job(store)


def everything(store: Store) -> dict[str, list[tuple]]:
    """Every row of every table: what two equal databases agree on."""
    with store.engine.connect() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(select(table)).all()))
            for table in tables.metadata.sorted_tables
        }


def kinds(result) -> list[tuple[str, str]]:
    return [(step.kind, step.incident.subject) for step in result.transitions]


ALL_KINDS = (
    report("orders", finding(), view=view(members=2)),
    progress(),
    rejected(),
    partitions("orders"),
)


def test_a_batch_fills_every_table(store, job):
    result = job.apply(*ALL_KINDS)
    assert result.applied
    assert kinds(result) == [("opened", "m-1")]
    behind = {"lag": 40, "lag_status": "ok"}
    assert store.read.group(CLUSTER, "orders") == view(members=2) | {"at_ms": START_MS} | behind
    assert store.lags.of_group(CLUSTER, "orders").partitions == 2
    assert store.read.groups().total == 1
    assert [row["generation"] for row in store.read.generations(CLUSTER, "orders")] == [3]
    assert store.read.brokers() == [(CLUSTER, "broker-1", START_MS, True, 120)]
    assert store.read.counters()[CLUSTER]["ingest:heartbeats"] == 10
    assert store.read.counters()[CLUSTER]["quarantined:telemetry:cut"] == 1
    assert [(row["offset"], row["head"]) for row in store.read.quarantine().objects] == [(1, b"{}")]
    assert [run[:5] for run in store.read.runs()] == [(CLUSTER, "c-1", 0, START_MS + 2_000, True)]
    assert store.outbox.totals() == [("", 1, 0, 0, START_MS + 2_000)]


def heartbeats(at_ms, *heard_ms, group="orders", seq=9):
    return {"kind": "heartbeats", "cluster": CLUSTER, "shard": 7, "seq": seq, "at_ms": at_ms} | {
        "groups": [[group, 0.5, list(heard_ms)]]
    }


def test_heartbeats_bring_a_stored_group_up_to_date(store, job):
    job.apply(report(view=view(members=2)))
    job.apply(heartbeats(START_MS + 22_500, START_MS + 22_000, START_MS + 13_500))
    group = store.read.group(CLUSTER, "orders")
    assert group["at_ms"] == START_MS + 22_500
    assert [member["last_heartbeat_ms"] - START_MS for member in group["members"]] == [22_000, 13_500]
    assert [member["heartbeat_headroom"] for member in group["members"]] == [0.989, 0.8]
    assert store.read.groups().objects == [group | {"open_incidents": {}}]


@pytest.mark.parametrize("together", [True, False])
def test_a_group_shown_whole_leaves_nothing_of_older_heartbeats(store, job, together):
    changed = report(view=view(members=1), at_ms=START_MS + 2_000)
    older = heartbeats(START_MS + 1_000, START_MS + 900, START_MS + 800, seq=-1)
    job.apply(report(view=view(members=2)))
    for batch in [[older, changed]] if together else [[older], [changed]]:
        job.apply(*batch)
    assert store.read.group(CLUSTER, "orders")["members"] == view(members=1)["members"]


def test_heartbeats_of_a_group_that_is_not_there_make_none(store, job):
    job.apply(heartbeats(START_MS, START_MS, group="nobody"))
    assert store.read.group(CLUSTER, "nobody") is None


def test_a_batch_applied_twice_counts_once(store, job):
    job.apply(*ALL_KINDS)
    before = everything(store)
    again = job.again(*ALL_KINDS, now_ms=START_MS + 9_000)
    assert again == (False, (), ())
    assert everything(store) == before


def test_a_checkpoint_that_is_behind_the_database_is_an_error_and_nothing_is_skipped(store, job):
    """Its folder was emptied or restored from a backup, or a standby has gone on in between."""
    for _ in range(3):
        job.apply(*ALL_KINDS)
    before = everything(store)
    with pytest.raises(CheckpointMismatchError, match="c-1 is at batch 0, but the database has its batch 2"):
        Job(store).apply(report("orders", finding(member="m-2")))
    assert everything(store) == before
    Job(store, "c-2").apply(*ALL_KINDS)
    with pytest.raises(CheckpointMismatchError, match="another run has gone on, with c-2, since c-1 was written last"):
        job.apply(report("orders", finding(member="m-2")))


def test_a_database_that_is_behind_the_checkpoint_is_an_error_and_nothing_is_written(store, job):
    """It is another one, was restored, or a replica took over that had not got the newest batches."""
    job.batch_id = 499
    before = everything(store)
    with pytest.raises(CheckpointMismatchError, match="c-1 is at batch 500, but the database has none of its batches"):
        job.apply(*ALL_KINDS)
    assert everything(store) == before
    restored = Job(store)
    restored.apply(*ALL_KINDS)
    before = everything(store)
    restored.batch_id += 1
    with pytest.raises(CheckpointMismatchError, match="c-1 is at batch 2, but the database has its batch 0"):
        restored.apply(*ALL_KINDS)
    assert everything(store) == before


def test_a_checkpoint_of_a_cluster_that_serve_has_forgotten_is_an_error(store, job):
    job.apply(*ALL_KINDS)
    store.retire(CLUSTER, SETTINGS)
    with pytest.raises(CheckpointMismatchError, match="serve has forgotten the cluster since c-1 was written last"):
        job.apply(*ALL_KINDS)
    assert Job(store, "c-2").apply(*ALL_KINDS).applied


def test_a_batch_applied_twice_counts_once_for_a_restarted_process_too(store, job, url):
    job.apply(*ALL_KINDS)
    before = everything(store)
    restarted = Store.open(url)
    assert not restarted.apply_batch(checkpoint_id="c-1", batch_id=0, outputs=ALL_KINDS, settings=SETTINGS).applied
    restarted.close()
    assert everything(store) == before


@pytest.mark.parametrize("step", ["write", "write_counters", "write_transitions"])
def test_a_batch_that_fails_anywhere_leaves_nothing_and_can_be_applied_again(store, job, monkeypatch, step):
    from streaming.store import batch, incident_rows

    job.apply(report("other", finding("other"), view=view("other")))
    before = everything(store)
    module = incident_rows if step == "write_transitions" else batch
    original = getattr(module, step)

    def broken(*arguments, **named):
        original(*arguments, **named)
        raise OSError("the disk is full")

    monkeypatch.setattr(module, step, broken)
    with pytest.raises(OSError, match="the disk is full"):
        job.apply(*ALL_KINDS, report("other", ended(finding("other"), START_MS + 1)))
    assert everything(store) == before
    monkeypatch.undo()
    assert sorted(kinds(job.again(*ALL_KINDS, report("other", ended(finding("other"), START_MS + 1))))) == [
        ("closed", "m-1"),
        ("opened", "m-1"),
    ]


KILLED = """
import os, signal, sys
from streaming.config.settings import Settings
from streaming.store import Store, incident_rows
from tests.support.outputs import CLUSTER, finding, report, view

written = incident_rows.write_transitions
def dies(*arguments, **named):
    written(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)
incident_rows.write_transitions = dies
outputs = [report("orders", finding(), view=view())]
Store.open(sys.argv[1]).apply_batch(
    checkpoint_id="c-1", batch_id=0, outputs=outputs, settings=Settings(cluster=CLUSTER)
)
"""


def test_a_process_killed_before_the_commit_leaves_nothing(store, job, url):
    before = everything(store)
    root = Path(__file__).parents[3]
    killed = subprocess.run([sys.executable, "-c", KILLED, url], cwd=root, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert everything(store) == before
    assert kinds(job.apply(report("orders", finding(), view=view()))) == [("opened", "m-1")]


def test_an_incident_lives_from_opening_to_closing(store, job):
    job.apply(report("orders", finding()))
    (opened,) = store.read.incidents(state="open").objects
    assert (opened["kind"], opened["transition"], opened["severity"]) == ("incident", "opened", "warn")
    assert (opened["labels"], opened["runbook_url"]) == ({"team": "shop"}, "https://runbooks/orders")
    job.apply(report("orders", finding(severity="page"), at_ms=START_MS + 60_000))
    (escalated,) = store.read.incidents(state="open").objects
    assert (escalated["transition"], escalated["severity"]) == ("escalated", "page")
    job.apply(report("orders", ended(finding(), START_MS + 90_000), at_ms=START_MS + 90_000))
    assert store.read.incidents(state="open").objects == []
    (closed,) = store.read.incidents(state="closed").objects
    assert (closed["transition"], closed["closed_ms"]) == ("closed", START_MS + 90_000)
    assert closed["incident_id"] == opened["incident_id"]
    assert closed["detected_ms"] == opened["detected_ms"]


def test_better_evidence_changes_the_incident_and_tells_nobody(store, job):
    job.apply(report("orders", finding(evidence="inferred")))
    assert kinds(job.apply(report("orders", finding(evidence="observed")))) == [("updated", "m-1")]
    (incident,) = store.read.incidents().objects
    assert (incident["transition"], incident["evidence"]) == ("opened", "observed")
    assert store.outbox.totals()[0].pending == 1


def test_what_opens_and_closes_in_one_batch_is_told_twice(store, job):
    result = job.apply(
        report("orders", ended(finding(), START_MS + 9_000), at_ms=START_MS + 9_000, seq=1), report("orders", finding())
    )
    assert [step.kind for step in result.transitions] == ["opened", "closed"]
    assert store.read.incidents().objects[0]["transition"] == "closed"
    assert store.outbox.totals()[0].pending == 2


def test_open_incidents_survive_a_restart_and_a_fresh_checkpoint(store, job, url):
    job.apply(report("orders", finding(), view=view()))
    store.close()
    restarted = Job(Store.open(url), "c-2")
    again = report("orders", finding(), view=view(), at_ms=START_MS + 500)
    assert kinds(restarted.apply(again)) == [("updated", "m-1")]
    over = report("orders", ended(finding(), START_MS + 9_000), at_ms=START_MS + 9_000)
    assert kinds(restarted.apply(over)) == [("closed", "m-1")]
    restarted.store.close()


def test_an_incident_that_opens_again_is_news(store, job):
    """Its deadline of long ago is no delay, what was late then is not late now, and it is the newest on the list."""
    stuck = finding(rule="static-member-stuck", severity="page")
    hour_ms, second_ms = START_MS + 3_600_000, START_MS + 2_000
    job.apply(report("orders", stuck, view=view()), late_before_ms=START_MS + 1_000)
    job.apply(report("orders", view=view(), at_ms=second_ms))
    job.apply(report("paid", finding("paid", opened_ms=second_ms)))
    again = job.apply(report("orders", stuck, view=view(), at_ms=hour_ms), now_ms=hour_ms + 700)
    assert again.detection_delays_ms == (700,)
    newest, _ = store.read.incidents()
    shown = (newest["group"], newest["opened_ms"], newest["detected_ms"], newest["late"], newest["closed_ms"])
    assert shown == ("orders", hour_ms, hour_ms + 700, False, None)


def test_a_violation_read_again_by_a_fresh_checkpoint_does_not_reopen(store, job):
    job.apply(report("orders", finding()))
    job.apply(report("orders", ended(finding(), START_MS + 9_000)))
    before = store.read.incidents().objects
    fresh = Job(store, "c-2")
    assert kinds(fresh.apply(report("orders", finding()))) == []
    assert kinds(fresh.apply(report("orders", ended(finding(), START_MS + 9_000)))) == []
    assert store.read.incidents().objects == before
    assert store.outbox.totals()[0].pending == 2


def test_a_trouble_that_is_there_again_is_told_again(store, job):
    """A broker's silence is dated by its last line: it has the same id when the leadership comes back to the broker."""
    told = report("", finding(**STALLED))
    assert [kinds(job.apply(each)) for each in (told, report("", at_ms=START_MS + 9_000), told)] == [
        [("opened", "broker-1")],
        [("closed", "broker-1")],
        [("opened", "broker-1")],
    ]
    (again,) = store.read.incidents(state="open").objects
    assert (again["transition"], again["at_ms"], again["closed_ms"]) == ("opened", START_MS + 9_000, None)
    assert store.outbox.totals()[0].pending == 3
    assert kinds(job.apply(report("", at_ms=START_MS + 10_000))) == [("closed", "broker-1")]


def test_a_trouble_that_is_there_again_while_run_catches_up_is_told_again(store, job):
    told = finding(**STALLED)
    job.apply(report("", told))
    job.apply(report("", at_ms=START_MS + 9_000))
    assert kinds(job.apply(report("", told, at_ms=START_MS + 8_000), caught_up=False)) == []
    assert kinds(job.apply(report("", told, at_ms=START_MS + 10_000), caught_up=False)) == [("opened", "broker-1")]


def test_an_incident_that_ends_and_is_found_again_in_one_batch_stays_closed(store, job):
    """Across batches the database tells that it has ended; within one its end was left out with its beginning."""
    job.apply(report("orders", finding()))
    over, again = ended(finding(), START_MS + 9_000), finding()
    assert kinds(job.apply(report("orders", over), report("orders", again, seq=1))) == [("closed", "m-1")]
    assert store.read.incidents(state="open").objects == []


def test_more_groups_may_go_than_a_statement_takes_parameters(store, job):
    job.apply(report("g39999", view=view("g39999", members=0)))
    job.apply(*(report(f"g{number}", deleted=True) for number in range(40_000)))
    assert store.read.groups().total == 0


def test_a_group_that_vanished_while_nobody_read_is_dropped_and_its_incident_closed(store, job, url):
    job.apply(report("orders", finding(), view=view()), report("gone", finding("gone"), view=view("gone")))
    fresh = Job(store, "c-2")
    fresh.apply(report("orders", finding(), view=view()), caught_up=False)
    assert store.read.group(CLUSTER, "gone") is not None
    result = fresh.apply(progress())
    assert [(step.kind, step.incident.group, step.incident.reason) for step in result.transitions] == [
        ("closed", "gone", "group-deleted")
    ]
    assert store.read.group(CLUSTER, "gone") is None
    assert store.read.group(CLUSTER, "orders") is not None


FOUND_AGAIN_BY_MS = START_MS + 2_000 + 120_000
"""When a checkpoint that caught up in a batch with the usual `now_ms` has found again what still goes on."""
STALLED = {"group": "", "rule": "telemetry-stalled", "member": "broker-1", "severity": "page"}


def test_a_brokers_incident_that_no_key_of_a_fresh_checkpoint_holds_is_superseded(store, job):
    """After a change of layout the keys that held it are no more: it would stay open for ever."""
    job.apply(report("", finding(**STALLED), holder="7"), report("", finding(**STALLED), holder="9"))
    fresh = Job(store, "c-2")
    assert kinds(fresh.apply(report("", holder="7.0"), caught_up=False)) == []
    assert kinds(fresh.apply(progress())) == []
    result = fresh.apply(progress(), now_ms=FOUND_AGAIN_BY_MS)
    assert [(step.kind, step.incident.reason) for step in result.transitions if step.kind != "updated"] == [
        ("closed", "superseded")
    ]


def test_a_fresh_checkpoint_keeps_a_broker_incident_found_again(store, job):
    """It stays open until the keys of the new checkpoint let go of it."""
    job.apply(report("", finding(**STALLED), holder="7"), report("", finding(**STALLED), holder="9"))
    fresh = Job(store, "c-2")
    fresh.apply(report("", finding(**STALLED), holder="7"), caught_up=False)
    fresh.apply(progress())
    fresh.apply(progress(), now_ms=FOUND_AGAIN_BY_MS)
    assert store.read.incidents(state="open").total == 1
    fresh.apply(report("", holder="7", at_ms=START_MS + 9_000))
    assert store.read.incidents().objects[0]["reason"] == "telemetry-back"


def test_a_restart_with_the_same_checkpoint_lets_go_of_no_brokers_incident(store, job):
    job.apply(report("", finding(**STALLED), holder="7"))
    job.apply(progress(), caught_up=False)
    job.apply(progress())
    job.apply(progress(), now_ms=FOUND_AGAIN_BY_MS)
    assert store.read.incidents(state="open").total == 1


@pytest.mark.parametrize("rule", ["rebalance-stuck", "partition-unowned", "join-refused"])
def test_a_fresh_checkpoint_closes_no_page_that_goes_on(store, job, rule):
    """Its first reports are about last week, and it finds a slow trouble anew only a minute after it has begun."""
    going_on = finding(rule=rule, severity="page")
    job.apply(report("orders", going_on, view=view()))
    fresh = Job(store, "c-2")
    for at_ms, caught_up in ((START_MS - 3_600_000, False), (START_MS + 5_000, False), (START_MS + 6_000, True)):
        assert kinds(fresh.apply(report("orders", view=view(), at_ms=at_ms), caught_up=caught_up)) == []
    later = finding(rule=rule, severity="page", opened_ms=START_MS + 7_000)
    assert kinds(fresh.apply(report("orders", later, at_ms=START_MS + 70_000))) == [("updated", "m-1")]
    assert kinds(fresh.apply(progress(), now_ms=FOUND_AGAIN_BY_MS)) == []
    assert kinds(fresh.apply(report("orders", view=view(), at_ms=START_MS + 80_000))) == [("closed", "m-1")]


def test_a_page_that_a_fresh_checkpoint_does_not_find_again_closes_as_recovered(store, job):
    job.apply(report("orders", finding(rule="rebalance-stuck"), view=view()))
    fresh = Job(store, "c-2")
    fresh.apply(report("orders", view=view()), caught_up=False)
    fresh.apply(progress())
    assert kinds(fresh.apply(progress(), now_ms=FOUND_AGAIN_BY_MS - 1)) == []
    (step,) = fresh.apply(progress(), now_ms=FOUND_AGAIN_BY_MS).transitions
    assert (step.kind, step.incident.reason) == ("closed", "recovered")


def test_a_deletion_of_long_ago_that_a_fresh_checkpoint_reads_closes_nothing(store, job):
    job.apply(report("orders", finding(), view=view()))
    fresh = Job(store, "c-2")
    assert kinds(fresh.apply(report("orders", deleted=True, at_ms=START_MS - 9_000), caught_up=False)) == []
    (step,) = fresh.apply(report("orders", deleted=True, at_ms=START_MS + 9_000), caught_up=False).transitions
    assert step.incident.reason == "group-deleted"


def test_an_adopted_incident_resolves_after_what_is_configured_for_its_group(store, job):
    """The replica that opened it is gone, so the store ends it by what the group looks like."""
    well = view(members=1, stable_since_ms=START_MS) | {"members": [member("m-9", joined_ms=0, connection="k:9")]}
    after = report("orders", view=well, at_ms=START_MS + 9_000)
    settings = Settings.model_validate({"cluster": CLUSTER, "thresholds": {"resolve_after_ms": 5_000}})
    job.apply(report("orders", finding(partitions=[]), view=view()))
    assert kinds(job.apply(after)) == []
    result = job.apply(after, settings=settings)
    assert [(step.kind, step.incident.reason) for step in result.transitions] == [("closed", "recovered")]


def test_a_restart_with_the_same_checkpoint_drops_no_group(store, job):
    job.apply(report("orders", view=view()), report("idle", view=view("idle", members=0)))
    job.apply(progress(), caught_up=False)
    job.apply(progress())
    assert store.read.groups().total == 2


def test_a_deleted_group_leaves_its_incidents_and_no_row(store, job):
    job.apply(report("orders", finding(), view=view()))
    job.apply(report("orders", deleted=True, at_ms=START_MS + 1))
    assert store.read.group(CLUSTER, "orders") is None
    assert store.read.incidents().objects[0]["reason"] == "group-deleted"


def test_what_a_shard_says_later_counts_even_if_it_looks_back(store, job):
    newer = report("orders", view=view(state="Empty"), at_ms=START_MS, seq=1)
    older = report("orders", view=view(state="Stable"), at_ms=START_MS + 500, seq=0)
    job.apply(newer, older)
    assert store.read.group(CLUSTER, "orders")["state"] == "Empty"


def test_a_broker_incident_lasts_until_the_last_shard_lets_go(store, job):
    stalled = finding("", "broker-1", rule="telemetry-stalled", member_id=None)
    assert kinds(job.apply(report("", stalled, shard=1), report("", stalled, shard=2))) == [
        ("opened", "broker-1"),
        ("updated", "broker-1"),
    ]
    assert kinds(job.apply(report("", shard=3), report("", shard=1))) == [("updated", "broker-1")]
    assert kinds(job.apply(report("", shard=2))) == [("closed", "broker-1")]


def test_switching_a_group_off_ends_what_is_open(store, job):
    job.apply(report("orders", finding()))
    off = SETTINGS.model_copy(update={"groups": (SETTINGS.groups[0].model_copy(update={"pattern": ".*"}),)})
    assert kinds(job.apply(report("orders", finding()), settings=off)) == [("closed", "m-1")]
    assert store.read.incidents(state="open").total == 0


def test_the_mode_of_a_group_decides_what_is_kept_and_what_is_told(store, job):
    job.apply(*(report(group, finding(group), view=view(group)) for group in ("silent", "quiet", "orders")))
    assert sorted(incident["group"] for incident in store.read.incidents().objects) == ["orders", "quiet"]
    assert store.outbox.totals()[0].pending == 1
    assert store.read.groups().total == 3


def test_the_delay_of_a_detection_is_counted_from_the_deadline(store, job):
    result = job.apply(report("orders", finding(deadline_ms=START_MS + 300)), now_ms=START_MS + 1_500)
    assert result.detection_delays_ms == (1_200,)
    assert store.read.counters()[CLUSTER]["detection:le:1500"] == 1
    assert store.read.incidents().objects[0]["detected_ms"] == START_MS + 1_500


def test_a_deadline_still_to_come_is_no_negative_delay(store, job):
    at_risk = finding(rule="session-at-risk", deadline_ms=START_MS + 15_000)
    assert job.apply(report("orders", at_risk), now_ms=START_MS + 700).detection_delays_ms == (200,)


def test_what_happened_before_the_start_is_late_and_spoils_no_delay(store, job):
    result = job.apply(report("orders", finding()), now_ms=START_MS + 3_600_000, late_before_ms=START_MS + 3_000_000)
    assert result.detection_delays_ms == ()
    assert store.read.incidents().objects[0]["late"] is True
    (message,) = _messages(store)
    assert message["late"] is True


@pytest.mark.parametrize(
    ("progress_ms", "judged_ms"),
    [
        ((), None),
        ((START_MS,), START_MS),
        ((START_MS + 5_000, START_MS), START_MS),
        ((START_MS, START_MS + 86_400_000), START_MS + 86_400_000),
    ],
    ids=["nothing was judged", "one shard", "the slowest counts", "a shard without groups for a day does not"],
)
def test_a_fresh_checkpoint_begins_where_all_groups_were_judged(store, job, progress_ms, judged_ms):
    job.apply(*(progress(shard, at_ms) for shard, at_ms in enumerate(progress_ms)), caught_up=False)
    assert store.read.judged_until_ms(CLUSTER) == judged_ms
    assert store.read.judged_until_ms("elsewhere") is None


@pytest.mark.parametrize(("caught_up", "judged_ms"), [(True, START_MS - 60_000), (False, None)])
def test_without_lines_it_begins_where_the_last_run_had_read_all(store, job, caught_up, judged_ms):
    job.apply(progress(0, 0), caught_up=caught_up, now_ms=START_MS)
    assert store.read.judged_until_ms(CLUSTER) == judged_ms
    lease = Lease(store.engine, CLUSTER)
    assert lease.acquire(threading.Event())
    store.note_start(lease)
    assert store.read.judged_until_ms(CLUSTER) == judged_ms  # also if it begins twice without a batch between


@pytest.mark.parametrize(
    "last",
    [
        [progress(1, START_MS, groups=0), progress(2, START_MS + 60_000)],
        [progress(2, START_MS + 60_000, groups=2), progress(2, START_MS, groups=0), progress(1, START_MS, groups=0)],
        [progress(2, START_MS + 86_400_000)],
    ],
    ids=["its groups were deleted", "so were those of a part of another", "nobody saw that its groups were deleted"],
)
def test_a_shard_that_lost_its_last_group_is_not_the_slowest(store, job, last):
    job.apply(progress(1, groups=1, held=2), progress(2))
    job.apply(*last)
    (totals,) = store.read.shards()
    assert totals.slowest_ms == max(output["at_ms"] for output in last)


def _messages(store: Store) -> list[dict]:
    store.outbox.fan_out({"r": ("info", "warn", "page")})
    return [json.loads(delivery.payload) for delivery in store.outbox.due("r", START_MS)]


HOSTILE = ("a\x00b", "\ud800", "'; DROP TABLE groups; --", "g" * 32_000, "\u202eevil", "{{7*7}}", " ", "%s%(x)s")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_any_group_id_is_stored_found_and_told_unchanged(store, job, name):
    hostile = finding(name, name, client_id=name, summary=name)
    job.apply(
        report(name, hostile, view=view(name, leader=name, state=name)),
        rejected(topic=name, reason=name, source=name),
        progress(brokers={name: {"progress_ms": START_MS, "covered": False, "delay_ms": None}}, counts={name: 1}),
    )
    assert store.read.group(CLUSTER, name)["group"] == name
    assert store.read.clusters_of(name) == [CLUSTER]
    assert store.read.incidents(group=name).objects[0]["member_id"] == name
    assert _messages(store)[0]["incident"]["group"] == name


def test_the_quarantine_keeps_the_newest_rows_of_each_cluster_and_counts_all(store, job, monkeypatch):
    from streaming.store import batch

    monkeypatch.setattr(batch, "QUARANTINE_ROWS", 5)
    job.apply(rejected(7, cluster="another"))
    job.apply(*(rejected(offset) for offset in range(20)))
    job.apply(*(rejected(offset) for offset in range(20, 23)))
    assert [row["offset"] for row in store.read.quarantine().objects] == [22, 21, 20, 19, 18, 7]
    assert store.read.counters()[CLUSTER]["quarantined:telemetry:cut"] == 23


def test_a_flood_of_one_cluster_displaces_no_rows_of_another(store, job, monkeypatch):
    from streaming.store import batch

    monkeypatch.setattr(batch, "QUARANTINE_ROWS", 5)
    other = SETTINGS.model_copy(update={"cluster": "dev"})
    Job(store, "c-dev").apply(rejected(7) | {"cluster": "dev"}, settings=other)
    job.apply(*(rejected(offset) for offset in range(20)))
    rows = [(row["cluster"], row["offset"]) for row in store.read.quarantine().objects]
    assert rows == [*((CLUSTER, offset) for offset in range(19, 14, -1)), ("dev", 7)]


def test_the_detail_of_a_rejected_row_is_kept_and_labels_no_counter(store, job):
    job.apply(*(rejected(number, detail=f"byte {number}") for number in range(3)))
    assert store.read.counters()[CLUSTER]["quarantined:telemetry:cut"] == 3
    assert {row["reason"] for row in store.read.quarantine().objects} == {f"cut: byte {number}" for number in range(3)}


def test_a_group_row_tells_its_worst_member(store, job):
    members = [
        member("a", heartbeat_headroom=0.8),
        member("b", heartbeat_headroom=0.1, liveness="violated"),
        member("c", heartbeat_headroom=None, liveness="unknown"),
    ]
    job.apply(report("orders", view=view() | {"members": members}))
    assert store.read.group_states(10)[0].worst_headroom == pytest.approx(0.1)
    assert store.read.group_totals() == [(CLUSTER, "classic", "Stable", 1, 3, 1, 1)]


def test_groups_come_in_pages_sorted_by_name(store, job):
    job.apply(*(report(f"g{number}", view=view(f"g{number}")) for number in range(5)))
    page = store.read.groups(limit=2, offset=2)
    assert ([group["group"] for group in page.objects], page.total) == (["g2", "g3"], 5)


def test_a_receiver_gets_only_the_oldest_message_of_an_incident(store, job):
    job.apply(report("orders", finding()), now_ms=wall_ms())
    job.apply(report("orders", ended(finding(), START_MS + 9_000), at_ms=START_MS + 9_000), now_ms=wall_ms())
    store.outbox.fan_out({"a": ("warn",), "b": ("warn",), "c": ("page",)})
    (opened,) = store.outbox.due("a", START_MS)
    assert opened.transition == "opened"
    store.outbox.attempt([opened.id])
    store.outbox.failed([opened.id], "500", next_attempt_ms=START_MS + 100)
    assert store.outbox.due("a", START_MS) == []
    (again,) = store.outbox.due("a", START_MS + 100)
    assert (again.id, again.attempts) == (opened.id, 1)
    store.outbox.done([again.id], START_MS + 101)
    (closed,) = store.outbox.due("a", START_MS + 101)
    assert closed.transition == "closed"
    assert [delivery.transition for delivery in store.outbox.due("b", START_MS)] == ["opened"]
    assert store.outbox.due("c", START_MS) == []


def test_a_receiver_that_wants_less_now_still_gets_the_end_of_what_it_was_told(store, job):
    """Otherwise PagerDuty would show the incident as open for ever."""
    job.apply(report("orders", finding()))
    store.outbox.fan_out({"a": ("warn", "page"), "b": ("page",)})
    store.outbox.done([store.outbox.due("a", 2**52)[0].id], START_MS)
    prune(store, 2**52)  # it is an old message, but its incident is open
    job.apply(report("orders", ended(finding(), START_MS + 9_000)))
    store.outbox.fan_out({"a": ("page",), "b": ("page",)})
    assert [transition for _, transition in pending(store, "a")] == ["closed"]
    assert pending(store, "b") == []


def test_a_receiver_that_is_new_or_refused_is_told_of_what_is_open(store, job):
    job.apply(report("orders", finding()), report("paid", finding("paid", severity="page")))
    store.outbox.fan_out({"a": ("page",)})
    store.outbox.failed([message.id for message in store.outbox.due("a", 2**52)], "400", None)
    assert store.outbox.tell_open({"a": ("page",), "b": ("warn", "page")}) == 3
    assert [len(pending(store, receiver)) for receiver in ("a", "b")] == [1, 2]
    assert store.outbox.tell_open({"a": ("page",), "b": ("warn", "page")}) == 0


def prune(store, before_ms):
    while store.prune(before_ms):
        pass


def old(store, hours=72):
    """Let all messages have been written so long ago."""
    with store.engine.begin() as connection:
        connection.execute(update(tables.outbox).values(created_ms=database_ms() - hours * 3_600_000))


def pending(store, receiver="a"):
    return [(row.incident_id, row.transition) for row in store.outbox.due(receiver, 2**52)]


class TestOldNews:
    """What opened and closed while nobody could be told is not sent days after; what is still open is, once."""

    def test_what_is_over_is_not_sent_and_what_is_open_is_sent_as_it_is(self, store, job):
        over, worse, still = finding("over"), finding("worse"), finding("still")
        job.apply(report("over", over), report("worse", worse), report("still", still))
        job.apply(report("worse", finding("worse", severity="page")))
        job.apply(report("over", ended(over, START_MS + 9_000)))
        store.outbox.fan_out({"a": ("warn", "page")})
        old(store)
        assert store.outbox.dismiss_outdated("a") == 3
        sent = [(json.loads(row.payload)["incident"]["group"], row.transition) for row in store.outbox.due("a", 2**52)]
        assert sorted(sent) == [("still", "opened"), ("worse", "escalated")]
        assert store.outbox.dismiss_outdated("a") == 0
        assert store.outbox.totals() == [("a", 2, 0, 0, store.outbox.totals()[0].oldest_ms)]

    def test_recent_messages_are_not_dismissed(self, store, job):
        found = finding()
        job.apply(report("orders", found), now_ms=None)
        job.apply(report("orders", ended(found, START_MS + 9_000)), now_ms=None)
        store.outbox.fan_out({"a": ("warn",)})
        assert store.outbox.dismiss_outdated("a") == 0

    def test_an_opening_that_may_have_arrived_gets_its_closing(self, store, job):
        """Killed between an answer and its mark, or an answer that was lost: the receiver may hold it open."""
        found = finding()
        job.apply(report("orders", found))
        store.outbox.fan_out({"a": ("warn",)})
        store.outbox.attempt([store.outbox.due("a", 2**52)[0].id])
        job.apply(report("orders", ended(found, START_MS + 9_000)))
        store.outbox.fan_out({"a": ("warn",)})
        old(store)
        assert store.outbox.dismiss_outdated("a") == 1
        assert [transition for _, transition in pending(store)] == ["closed"]

    def test_each_receiver_is_judged_by_itself(self, store, job):
        found = finding()
        job.apply(report("orders", found))
        store.outbox.fan_out({"a": ("warn",), "b": ("warn",)})
        store.outbox.done([store.outbox.due("a", 2**52)[0].id], START_MS)
        job.apply(report("orders", ended(found, START_MS + 9_000)))
        store.outbox.fan_out({"a": ("warn",), "b": ("warn",)})
        old(store)
        assert [store.outbox.dismiss_outdated(receiver) for receiver in ("a", "b")] == [0, 2]
        assert [transition for _, transition in pending(store)] == ["closed"]

    def test_thousands_are_dismissed_whatever_the_portion(self, store, job, monkeypatch):
        monkeypatch.setattr("streaming.store.outbox._CHAINS_AT_ONCE", 7)
        found = [finding(f"g{number}", severity="page" if number % 5 == 0 else "warn") for number in range(50)]
        job.apply(*(report(one["group"], one) for one in found))
        job.apply(*(report(one["group"], ended(one, START_MS + 9_000)) for one in found))
        store.outbox.fan_out({"a": ("warn", "page")})
        old(store)
        assert store.outbox.dismiss_outdated("a") == 100
        (missed,) = store.outbox.missed(3_600_000)
        assert missed[:6] == (CLUSTER, "a", 10, 40, START_MS, START_MS + 9_000)
        with store.engine.begin() as connection:
            connection.execute(update(tables.outbox).values(dismissed_ms=database_ms() - 3_600_001))
        assert store.outbox.missed(3_600_000) == []
        prune(store, 2**52)
        assert store.outbox.totals() == []


def test_a_dead_message_gives_way_to_the_next(store, job):
    now_ms = wall_ms()
    job.apply(report("orders", finding()), now_ms=now_ms)
    job.apply(report("orders", ended(finding(), START_MS + 9_000), at_ms=START_MS + 9_000), now_ms=now_ms)
    store.outbox.fan_out({"a": ("warn",)})
    store.outbox.failed([store.outbox.due("a", START_MS)[0].id], "400", next_attempt_ms=None)
    assert [delivery.transition for delivery in store.outbox.due("a", START_MS)] == ["closed"]
    assert store.outbox.totals() == [("a", 1, 1, 0, now_ms)]


def test_messages_for_a_receiver_that_is_gone_do_not_wait_for_ever(store, job):
    job.apply(report("orders", finding()))
    store.outbox.fan_out({"old": ("warn",)})
    assert store.outbox.give_up_removed_receivers(["new"]) == 1
    assert store.outbox.totals()[0].dead == 1


def test_old_things_are_forgotten_and_open_ones_kept(store, job):
    job.apply(report("orders", finding("orders", "m-1"), finding("orders", "m-2"), view=view()))
    over = ended(finding("orders", "m-1"), START_MS + 1)
    job.apply(report("orders", over, finding("orders", "m-2"), at_ms=START_MS + 1))
    prune(store, START_MS + 1_000)
    assert [incident["member_id"] for incident in store.read.incidents().objects] == ["m-2"]
    assert store.read.generations(CLUSTER, "orders") == []


def test_what_is_kept_for_ever_is_not_pruned(store, job):
    job.apply(report("orders", finding(), view=view()))
    job.apply(report("orders", ended(finding(), START_MS + 1), at_ms=START_MS + 1))
    store.prune(wall_ms() - MOST * DAY_MS)
    assert len(store.read.incidents().objects) == 1
    assert len(store.read.generations(CLUSTER, "orders")) == 1


def test_a_broker_that_run_no_longer_reports_is_forgotten_after_a_day(store, job):
    """A broker that is only down has to be reported as silent meanwhile."""
    hours_ago = {name: wall_ms() - hours * 3_600_000 for name, hours in (("gone", 25), ("down", 23))}
    seen = {name: {"progress_ms": at_ms, "covered": True, "delay_ms": None} for name, at_ms in hours_ago.items()}
    job.apply(progress(brokers=seen))
    store.prune(0)
    assert [broker.broker for broker in store.read.brokers()] == ["down"]


def test_the_sign_of_life_is_the_databases_time(store, job, monkeypatch):
    """A `run` whose machine is an hour behind was silent for an hour, by the clock of `serve`: a page each night."""
    behind_ns = time.time_ns() - 3_600_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: behind_ns)
    job.apply(progress(), report("orders", finding()), now_ms=None)
    assert store.read.runs()[0].silent_ms < 60_000
    (incident,) = store.read.incidents().objects
    assert incident["detected_ms"] > behind_ns // 1_000_000 + 3_500_000


def test_reading_goes_on_while_a_batch_is_written(store, job):
    job.apply(report("orders", view=view()))
    with store._writer.begin() as connection:
        connection.execute(tables.groups.update().values(state="Empty"))
        assert store.read.group_states(1)[0].state == "Stable"
    assert store.read.group_states(1)[0].state == "Empty"


def test_an_unknown_telemetry_delay_does_not_wipe_a_known_one(store, job):
    unknown = {"broker-1": {"progress_ms": START_MS + 5, "covered": False, "delay_ms": None}}
    job.apply(progress(), progress(8, brokers=unknown))
    assert store.read.brokers() == [(CLUSTER, "broker-1", START_MS + 5, False, 120)]
    job.apply(progress(brokers=unknown))
    assert store.read.brokers() == [(CLUSTER, "broker-1", START_MS + 5, False, 120)]


@pytest.mark.parametrize("uncovered", [7, 8])
def test_a_broker_is_covered_if_it_is_for_every_shard(store, job, uncovered):
    missing = {"broker-1": {"progress_ms": START_MS, "covered": False, "delay_ms": 120}}
    job.apply(*(progress(shard, brokers=missing) if shard == uncovered else progress(shard) for shard in (7, 8)))
    assert [broker.covered for broker in store.read.brokers()] == [False]
    job.apply(progress(7), progress(8))
    assert [broker.covered for broker in store.read.brokers()] == [True]


def test_two_processes_may_create_the_schema_at_once(url):
    opened: list[Store] = []
    threads = [threading.Thread(target=lambda: opened.append(Store.open(url))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4
    for store in opened:
        store.close()


def test_a_database_of_another_version_is_refused(store, url):
    with store._writer.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="made by a newer version of this program"):
        Store.open(url)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("nonsense", "not a database URL"),
        ("postgresql+psycopg://u:secret@h:54x2/d", "not a database URL"),
        ("mysql+nothing://u:secret@h/d", "not a database URL"),
        ("postgresql+psycopg://u:secret@127.0.0.1:1/d", "cannot open|not installed"),
        ("sqlite:////proc/nowhere/monitor.db", "cannot open"),
    ],
)
def test_a_database_that_cannot_be_opened_is_one_line_without_the_password(wrong, words):
    with pytest.raises(StoreError, match=words) as caught:
        Store.open(wrong)
    assert "secret" not in str(caught.value)


def test_a_view_of_ten_thousand_groups_is_written_by_few_statements(tmp_path):
    """A statement per row would make a batch of many groups too dear; the number must not grow with the groups."""
    from sqlalchemy import event

    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    statements: list[str] = []

    @event.listens_for(store.engine, "before_cursor_execute")
    def _count(_connection, _cursor, statement, *_rest):
        statements.append(statement)

    Job(store).apply(*(report(f"g{number}", view=view(f"g{number}")) for number in range(1_000)))
    assert len(statements) < 20
    with store.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(tables.groups)).scalar() == 1_000
    store.close()
