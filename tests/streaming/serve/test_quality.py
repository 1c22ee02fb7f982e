"""The data as a whole: what no row shows alone is found, told with rows, and over when it is over."""

import json
import threading
from dataclasses import replace

import pytest

pytest.importorskip("great_expectations")

from click.testing import CliRunner
from sqlalchemy import insert, text

from coordinator_model.group_report import GroupReport
from streaming.cli import main
from streaming.quality.checker import Checker, to_frame
from streaming.quality.sample import COLUMNS, take
from streaming.quality.watch import FAILURES_TO_TELL, QualityWatch
from streaming.store import tables
from streaming.store.store import wall_ms
from tests.support.outputs import CLUSTER, START_MS, decoded, finding, member, progress, rejected, report, view

NOW_MS = START_MS + 1_000


@pytest.fixture(scope="module")
def checker():
    return Checker()


@pytest.fixture
def failing(store, checker):
    """Names of the expectations that a sample of the store fails."""

    def _failing(now_ms=NOW_MS):
        frames = take(store, CLUSTER, 1_000, now_ms, {})
        return {
            f"{v.suite}.{v.expectation.partition('(')[2][:-1]}": v
            for v in checker.check(frames.rows, CLUSTER)
            if not v.success
        }

    return _failing


def test_an_empty_store_meets_every_expectation(failing):
    assert failing() == {}


def test_a_healthy_store_meets_every_expectation(apply, failing):
    apply(report("orders", finding(), view=view(members=3, leader="m-0")), progress())
    apply(report("orders", finding(), view=view(members=2, generation=4, leader="m-0", stable_since_ms=START_MS)))
    assert failing() == {}


BAD = {
    "groups.state": report(view=view(state="Confused")),
    "groups.type": report(view=view(type="odd")),
    "groups.generation": report(view=view(generation=-7)),
    "groups.age_ms": report(view=view(), at_ms=NOW_MS + 60_000),
    "groups.leader_is_member": report(view=view(leader="somebody else", members=2)),
    "members.session_timeout_ms": report(view=view(leader="") | {"members": [member("a", session_timeout_ms=10**9)]}),
    "members.heartbeat_ahead_ms": report(
        view=view(leader="") | {"members": [member("a", last_heartbeat_ms=NOW_MS + 60_000)]}
    ),
    "members.liveness": report(view=view(leader="") | {"members": [member("a", liveness="zombie")]}),
    "incidents.evidence": report("orders", finding(evidence="guessed")),
    "incidents.opened_ahead_ms": report("orders", finding(opened_ms=NOW_MS + 60_000)),
    "sources.covered_ratio": progress(brokers={"b": {"progress_ms": START_MS, "covered": False, "delay_ms": 5}}),
    "sources.delay_ms": progress(brokers={"b": {"progress_ms": START_MS, "covered": True, "delay_ms": 90_000}}),
    "sources.progress_ahead_ms": progress(
        brokers={"b": {"progress_ms": NOW_MS + 60_000, "covered": True, "delay_ms": 5}}
    ),
}


def test_records_of_a_version_that_nobody_knows_are_named(apply, failing):
    """A broker was upgraded; what its records say is lost on us."""
    apply(progress(), decoded(**{"GroupMetadata:3:decoded": 9_000, "GroupMetadata::tombstone": 7}))
    assert failing() == {}
    apply(decoded(**{"OffsetCommit:unknown:unknown-version": 3}))
    found = failing()
    assert set(found) == {"sources.unknown_versions"}
    assert found["sources.unknown_versions"].sample[0]["unknown_versions"] == 3


@pytest.mark.parametrize(("name", "output"), BAD.items(), ids=BAD)
def test_what_is_wrong_is_named_with_rows_that_show_it(apply, failing, name, output):
    if isinstance(output, GroupReport) and output.view and output.view["leader"] == "m-0":
        output = replace(output, view=output.view | {"leader": None})
    apply(output)
    found = failing()
    assert set(found) == {name}
    assert found[name].unexpected == 1
    assert len(found[name].sample) == 1


def test_a_generation_that_goes_back_is_found_and_a_group_made_anew_is_not(apply, failing):
    apply(report(view=view(generation=9, leader=None)), report("anew", view=view("anew", generation=9, leader=None)))
    apply(report("anew", deleted=True), report(view=view(generation=4, leader=None, stable_since_ms=START_MS)))
    apply(report("anew", view=view("anew", generation=1, leader=None, stable_since_ms=START_MS)))
    assert set(failing()) == {"generations.step"}


def test_rejected_rows_count_by_their_share_since_the_last_sample(apply, store, checker):
    apply(*(rejected(offset=number) for number in range(5)), progress(counts={"heartbeats": 95}))
    first = take(store, CLUSTER, 1_000, NOW_MS, {})
    assert first.rows["sources"][0]["rejected_ratio"] == 0.05
    apply(progress(counts={"heartbeats": 1_000}))
    assert take(store, CLUSTER, 1_000, NOW_MS, first.counters).rows["sources"][0]["rejected_ratio"] == 0


def test_a_sample_is_bounded_whatever_the_fleet(apply, store):
    apply(*(report(f"g{number}", view=view(f"g{number}", members=5)) for number in range(50)))
    frames = take(store, CLUSTER, 10, NOW_MS, {})
    assert {name: len(rows) for name, rows in frames.rows.items()} == {
        "groups": 10, "members": 10, "generations": 0, "incidents": 0, "sources": 1,
    }  # fmt: skip


def test_a_large_cluster_leaves_a_small_one_its_sample(apply, store):
    """All shared one sample: without rows every expectation about the small one was met."""
    apply(report(view=view(cluster="small"), at_ms=START_MS - 1), progress(), cluster="small")
    apply(*(report(f"g{number}", finding(f"g{number}"), view=view(f"g{number}")) for number in range(50)))
    rows = take(store, "small", 10, NOW_MS, {}).rows
    assert [(row["cluster"], row["group"]) for row in rows["groups"]] == [("small", "orders")]
    assert {row["cluster"] for of_frame in rows.values() for row in of_frame} == {"small"}


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_and_columns_agree(apply, store, name):
    apply(report("orders", finding(), view=view()), progress())
    apply(report("orders", finding(), view=view(generation=4, stable_since_ms=START_MS)))
    rows = take(store, CLUSTER, 10, NOW_MS, {}).rows[name]
    assert rows
    assert set(rows[0]) == set(COLUMNS[name]) == set(to_frame(name, rows).columns)


class TestWatch:
    @pytest.fixture
    def watch(self, store, settings, checker):
        made = QualityWatch(store, settings, lambda: True, threading.Event())
        made._checker = checker
        return made

    def test_a_suite_that_goes_on_failing_is_one_incident_until_it_is_met(self, apply, watch, store, client):
        apply(report(view=view(state="Confused", leader=None)), progress())
        now_ms = wall_ms()
        watch.check(now_ms)
        assert store.read.incidents().total == 0
        for number in range(1, FAILURES_TO_TELL + 2):
            watch.check(now_ms + number)
        (found,) = client.json("/api/v1/incidents?state=open")
        assert found["rule"] == "data-quality"
        assert "groups: expect_column_values_to_be_in_set(state)" in found["summary"]
        assert found["detail"]["sample"][0]["state"] == "Confused"
        assert 'suite="groups"} 0.0' in client.get("/metrics").text
        apply(report(view=view(leader=None)))
        watch.check(now_ms + 10)
        assert client.json("/api/v1/incidents?state=open") == []
        assert store.read.incidents().total == 1

    def test_the_result_of_an_expectation_that_is_gone_is_gone(self, apply, watch, store):
        """One that an upgrade renamed after it had failed was exported as failing for ever."""
        apply(progress(), cluster="dev")
        apply(progress())
        watch.check(NOW_MS)
        known = {(row.cluster, row.expectation) for row in store.read.quality()}
        old = {
            "suite": "groups",
            "expectation": "old",
            "success": False,
            "checked_ms": 0,
            "unexpected": 1,
            "sample": "",
        }
        with store.engine.begin() as connection:
            connection.execute(insert(tables.quality), [old | {"cluster": name} for name in ("dev", CLUSTER)])
        watch.check(NOW_MS + 1)
        assert {(row.cluster, row.expectation) for row in store.read.quality()} == known

    def test_a_restarted_serve_goes_on_with_its_incident(self, apply, watch, store, settings, checker):
        apply(report(view=view(state="Confused", leader=None)), progress())
        other = QualityWatch(store, settings, lambda: True, threading.Event())
        other._checker = checker
        for number, who in enumerate((watch, watch, other, other)):
            who.check(NOW_MS + number)
        assert store.read.incidents().total == 1

    def test_run_does_not_close_what_it_did_not_open(self, apply, watch, store):
        apply(report(view=view(state="Confused", leader=None)), progress())
        for number in range(FAILURES_TO_TELL):
            watch.check(NOW_MS + number)
        store._open.clear()
        assert apply(report("")).transitions == ()
        assert store.read.incidents(state="open").total == 1


def test_the_command_says_ok_of_nothing_that_is_not_there(apply, settings, tmp_path):
    """It made an empty database and said ok to every expectation."""
    config = tmp_path / "monitor.toml"

    def said(cluster, file):
        config.write_text(f'cluster = "{cluster}"\n[store]\nurl = "sqlite:///{tmp_path}/{file}"\n')
        done = CliRunner().invoke(main, ["quality", "--config", str(config)])
        assert done.exit_code == 1
        return done.output

    apply(progress())
    assert "cannot open" in said(CLUSTER, "nowhere.db")
    assert not (tmp_path / "nowhere.db").exists()
    (tmp_path / "empty.db").touch()
    assert "it is empty" in said(CLUSTER, "empty.db")
    assert "nothing is stored of cluster 'prd'; known: prod" in said("prd", "monitor.db")


def test_a_database_that_fails_under_the_command_is_one_line(apply, settings, store, tmp_path):
    apply(report(view=view()), progress())
    with store.engine.begin() as connection:
        connection.execute(text("ALTER TABLE generations RENAME TO gone"))
    config = tmp_path / "monitor.toml"
    config.write_text(f'cluster = "{CLUSTER}"\n[store]\nurl = "{settings.store.url}"\n')
    done = CliRunner().invoke(main, ["quality", "--config", str(config)])
    assert done.exit_code == 1
    assert done.output == "Error: the database failed: OperationalError: no such table: generations\n"


def test_the_command_names_what_fails_and_writes_data_docs(apply, settings, tmp_path):
    apply(report(view=view(state="Confused", leader=None)), progress())
    config = tmp_path / "monitor.toml"
    config.write_text(f'cluster = "{CLUSTER}"\n[store]\nurl = "{settings.store.url}"\n')
    done = CliRunner().invoke(main, ["quality", "--config", str(config), "--docs", str(tmp_path / "docs")])
    assert done.exit_code == 1, done.output
    assert "FAIL groups: expect_column_values_to_be_in_set(state)" in done.output
    assert list((tmp_path / "docs").rglob("index.html"))
    said = CliRunner().invoke(main, ["quality", "--config", str(config), "--json"]).output.splitlines()
    (failed,) = [verdict for verdict in map(json.loads, said) if not verdict["success"]]
    assert (failed["suite"], failed["sample"][0]["state"]) == ("groups", "Confused")
