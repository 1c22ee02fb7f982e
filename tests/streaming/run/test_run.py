"""The real job: Kafka, Spark, SQLite; a coordinator whose every word is ours."""

import json
import os
import signal
import time

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from coordinator_model.shard.sharding import shard_of
from streaming.embedded import EmbeddedCluster
from tests.e2e.crash_job import processes
from tests.streaming.run.conftest import Coordinator, Monitor
from tests.streaming.run.listeners import no_stranger_reaches
from tests.support import databases

pytestmark = pytest.mark.spark

AWAY_S = 60
EXPIRED = "SELECT body FROM incidents WHERE rule = 'session-expired'"


def live(coordinator, members):
    """A stable group of three, heard for 20 seconds that lie before the start of the monitor."""
    coordinator.create_telemetry()
    coordinator.record("orders", 3, members, 0)
    coordinator.beats("orders", members, 3, range(1, 20))


def one_dies(coordinator, members, from_second=20):
    """The last member is silent from there on, and removed ten seconds after it was last heard."""
    coordinator.beats("orders", members[:-1], 3, range(from_second, 29))
    coordinator.expire("orders", members, 3, 29)
    coordinator.beats("orders", members[:-1], 4, range(31, 45))


def expired(rows):
    return [(body["group"], body["member_id"], body["deadline_ms"]) for (text,) in rows for body in [json.loads(text)]]


def the_death(coordinator, members):
    return ("orders", members[-1].member_id, pytest.approx(coordinator.start_ms + 29_000, abs=20))


def nobody_elsewhere_reaches(watching):
    """Spark on this machine listens on the loopback alone, and there it demands the secret; Py4J demands its token."""
    found = watching.listeners()
    assert {listener for listener in found if not listener.address.is_loopback} == set()
    no_stranger_reaches(found)


def open_to_others(*paths):
    """Files and folders, and all in them, on which others than their owner have any right."""
    found = [inner for path in paths for inner in (path, *path.rglob("*"))]
    assert len(found) > 20
    return [str(path) for path in found if _mode(path) & 0o077]


def _mode(path):
    """The permissions of a file; none if Spark has deleted it meanwhile."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize(
    "run",
    [
        pytest.param({"master": "local[*]"}, id="shard"),
        pytest.param({"operator_key": "group"}, id="group", marks=pytest.mark.soak),
        pytest.param({"shard_split": 3}, id="split", marks=pytest.mark.soak),
    ],
)
def test_a_death_seen_live_becomes_one_incident(coordinator, monitor, members, run):
    live(coordinator, members)
    watching = monitor(**run)
    watching.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
    nobody_elsewhere_reaches(watching)
    one_dies(coordinator, members)
    assert expired(watching.wait_for(EXPIRED)) == [the_death(coordinator, members)]
    watching.wait_for("SELECT 1 FROM groups WHERE members = 2 AND generation = 4")
    assert open_to_others(watching.folder / "data", watching.database) == []
    assert watching.rows(
        "SELECT t.transition FROM transitions t JOIN incidents USING (incident_id) WHERE rule = 'session-expired'"
    )
    assert watching.stop() == 0
    assert watching.printed.read_text() == ""
    _, incubator, logged = watching.log.read_text().partition("WARNING: Using incubator modules")
    assert incubator  # the JVM's own line, the last one that is not JSON
    assert all(line.startswith("{") for line in logged.splitlines()[1:]), logged
    caught_up = next(event for event in watching.events() if event["event"].startswith("caught up"))
    assert (caught_up["level"], caught_up["timestamp"][-1]) == ("info", "Z")


def test_killed_and_restarted_it_raises_what_it_missed_and_nothing_twice(coordinator, monitor, members):
    live(coordinator, members)
    first = monitor()
    first.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
    first.kill()
    one_dies(coordinator, members)
    second = monitor()
    assert expired(second.wait_for(EXPIRED)) == [the_death(coordinator, members)]
    assert second.rows("SELECT late FROM incidents WHERE rule = 'session-expired'") == [(1,)]
    second.kill()
    third = monitor()
    third.said("caught up")
    third.wait_for("SELECT 1 FROM groups WHERE members = 2")
    assert len(third.rows(EXPIRED)) == 1
    assert "going on" in third.log.read_text()


def test_a_killed_worker_is_replaced_and_a_killed_jvm_ends_run(coordinator, monitor, members):
    """Neither may leave a job that lives and does nothing: run ends with one clear line (see also `make kills`)."""
    live(coordinator, members)
    watching = monitor()
    watching.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
    for process in processes([watching.process.pid]):
        if "pyspark.daemon" in process.command:
            os.kill(process.pid, signal.SIGKILL)
    one_dies(coordinator, members)
    assert expired(watching.wait_for(EXPIRED)) == [the_death(coordinator, members)]
    (jvm,) = [process.pid for process in processes([watching.process.pid]) if "deploy.SparkSubmit" in process.command]
    os.kill(jvm, signal.SIGKILL)
    assert watching.process.wait(60) == 1
    ending = "run: Spark's JVM has ended (exit status -9), so run ends too. "
    ending += "Start run again: it continues from its checkpoint"
    assert watching.log.read_text().splitlines()[-1] == ending


def test_what_died_before_a_fresh_checkpoint_is_history(coordinator, monitor, members):
    live(coordinator, members)
    one_dies(coordinator, members)
    watching = monitor()
    watching.wait_for("SELECT 1 FROM groups WHERE members = 2 AND generation = 4")
    watching.wait_for("SELECT 1 FROM runs WHERE caught_up")
    assert watching.rows(EXPIRED) == []


def test_a_checkpoint_of_another_layout_is_kept_aside_and_open_incidents_stay(coordinator, monitor, members):
    live(coordinator, members)
    first = monitor()
    first.wait_for("SELECT 1 FROM groups WHERE members = 3")
    one_dies(coordinator, members)
    before = first.wait_for("SELECT incident_id FROM incidents WHERE rule = 'session-expired' AND closed_ms IS NULL")
    first.stop()
    second = monitor(shuffle_partitions=3)
    second.said("the old checkpoint does not fit and is kept aside")
    second.wait_for("SELECT 1 FROM runs WHERE caught_up AND batch_id > 3")
    assert second.rows("SELECT incident_id FROM incidents WHERE rule = 'session-expired'") == before
    assert len(list((second.folder / "data").glob("checkpoint-*"))) == 2


def test_unreadable_rows_are_kept_and_lose_nothing_beside_them(coordinator, monitor, members):
    live(coordinator, members)
    shard = shard_of("orders", 50)
    coordinator.send(coordinator.records, b"\x00\x63junk", b"\x00", coordinator.start_ms, shard)
    coordinator.send(coordinator.records, None, b"no key", coordinator.start_ms, shard)
    coordinator.send(coordinator.records, b"\x00\x02\x00\x06ord", b"\x00\x03", coordinator.start_ms, shard)
    coordinator.line(b'Completed request:{"isForwarded":false,"requestHe', 19.5)
    coordinator.line(b"Completed request:" + b"x" * 900_000, 19.6)
    one_dies(coordinator, members)
    watching = monitor()
    watching.wait_for("SELECT 1 FROM groups WHERE members = 2 AND generation = 4")
    kept = watching.wait_for("SELECT source, topic, reason, length(head) FROM quarantine", lambda rows: len(rows) >= 5)
    assert len(kept) == 5
    assert {(source, topic) for source, topic, *_ in kept} == {
        ("offsets", coordinator.records),
        ("telemetry", coordinator.lines),
    }
    assert all(reason and size <= 96 for *_, reason, size in kept)


def test_a_telemetry_topic_that_appears_later_is_picked_up(coordinator, monitor, members):
    coordinator.record("orders", 3, members, 0)
    coordinator.producer.flush()
    watching = monitor()
    watching.said("topic does not exist yet")
    watching.wait_for("SELECT 1 FROM groups WHERE members = 3")
    coordinator.start_ms = time.time_ns() // 1_000_000  # after the start of the monitor: no history
    live(coordinator, members)
    watching.wait_for("SELECT 1 FROM brokers")
    one_dies(coordinator, members)
    assert expired(watching.wait_for(EXPIRED)) == [the_death(coordinator, members)]


def test_a_telemetry_topic_that_is_recreated_hides_no_death(coordinator, monitor, members):
    """Its offsets begin again: what is read then is no duplicate, and what was lost between is told as lost."""
    live(coordinator, members)
    watching = monitor()
    watching.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
    coordinator.recreate(coordinator.lines)
    coordinator.beats("orders", members, 3, range(20, 30))
    watching.wait_for("SELECT progress_ms FROM brokers", lambda rows: rows[0][0] >= coordinator.start_ms + 28_000)
    coordinator.beats("orders", members[:-1], 3, range(30, 39))
    coordinator.expire("orders", members, 3, 39)
    coordinator.beats("orders", members[:-1], 4, range(41, 55))
    [(group, member, deadline_ms)] = expired(watching.wait_for(EXPIRED))
    assert (group, member) == ("orders", members[-1].member_id)
    assert abs(deadline_ms - coordinator.start_ms - 39_000) < 1_000
    assert "recreated" in watching.log.read_text()


@pytest.mark.soak
def test_two_executors_of_a_cluster_say_the_same(coordinator, monitor, members):
    live(coordinator, members)
    watching = monitor(master="local-cluster[2,1,1024]")
    watching.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
    nobody_elsewhere_reaches(watching)
    one_dies(coordinator, members)
    assert expired(watching.wait_for(EXPIRED)) == [the_death(coordinator, members)]
    assert watching.stop() == 0


@pytest.mark.soak
def test_a_broker_away_for_a_minute_stops_nothing(broker, tmp_path, request, members):
    with EmbeddedCluster(telemetry=False, create_telemetry_topic=False) as cluster:
        coordinator = Coordinator(cluster, "away")
        live(coordinator, members)
        watching = Monitor(coordinator, tmp_path).start()
        request.addfinalizer(lambda: watching.process.poll() is None and watching.kill())
        watching.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
        cluster.node(1).kill()
        time.sleep(AWAY_S)
        cluster.node(1).start()
        one_dies(coordinator, members)
        assert expired(watching.wait_for(EXPIRED)) == [the_death(coordinator, members)]
        assert watching.stop() == 0


class OnPostgres(Monitor):
    """The real job over a real PostgreSQL."""

    def rows(self, sql):
        try:
            with create_engine(self.store_url, poolclass=NullPool).connect() as connection:
                return [tuple(row) for row in connection.execute(text(sql))]
        except SQLAlchemyError:
            return []  # away, or without tables yet


@pytest.mark.soak
def test_a_database_that_refuses_writes_and_is_then_away_for_a_minute_stops_nothing(
    coordinator, tmp_path, request, members
):
    if reason := databases.missing():
        pytest.skip(reason)
    live(coordinator, members)
    with databases.server() as postgres:
        watching = OnPostgres(coordinator, tmp_path)
        watching.store_url = postgres.url
        watching.start()
        request.addfinalizer(lambda: watching.process.poll() is None and watching.kill())
        watching.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
        postgres.refuse_writes()
        watching.said("it refuses writes: make it writable again")
        postgres.stop()
        one_dies(coordinator, members)
        watching.said("it does not answer: start it")
        time.sleep(AWAY_S)
        postgres.start()
        postgres.take_writes()
        assert expired(watching.wait_for(EXPIRED)) == [the_death(coordinator, members)]
        assert watching.stop() == 0


def test_sighup_applies_a_new_configuration_unless_it_is_wrong(coordinator, monitor, members):
    """The same checkpoint goes on."""
    live(coordinator, members)
    watching = monitor()
    watching.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
    config = watching.folder / "monitor.toml"
    good = config.read_text()
    config.write_text(good + '[[groups]]\npattern = "orders"\nmoed = "record"\n')
    watching.process.send_signal(signal.SIGHUP)
    watching.said("the configuration stays as it was")
    config.write_text(good + '[[groups]]\npattern = "orders"\nmode = "record"\n')
    watching.process.send_signal(signal.SIGHUP)
    watching.said("configuration read again")
    watching.said("going on")
    one_dies(coordinator, members)
    assert expired(watching.wait_for(EXPIRED)) == [the_death(coordinator, members)]
    # Lines that end a minute ago may make messages about the whole cluster, should this machine be slow.
    of_groups = "FROM outbox JOIN incidents USING (incident_id) WHERE group_id != ''"
    assert watching.rows(f"SELECT count(*) {of_groups}") == [(0,)]
    assert watching.rows("SELECT count(DISTINCT checkpoint_id) FROM applied_batches") == [(1,)]
    assert watching.stop() == 0


def test_a_second_run_refuses_and_a_standby_takes_over(coordinator, members, tmp_path, request):
    """Two runs on one database closed each other's incidents, as `group-deleted`, 800 ms after they were opened."""
    if reason := databases.missing():
        pytest.skip(reason)
    live(coordinator, members)

    def another(name, **run):
        (tmp_path / name).mkdir()
        made = OnPostgres(coordinator, tmp_path / name, run)
        made.store_url = postgres.url
        request.addfinalizer(lambda: made.process.poll() is None and made.kill())
        return made.start()

    with databases.server() as postgres:
        first = another("first")
        first.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
        second = another("second")
        assert second.process.wait(60) == 1
        refusal = second.log.read_text().splitlines()[-1]
        assert f"cluster default is already watched by process {first.process.pid} on " in refusal
        assert "Spark" not in refusal
        standby = another("standby", standby=True)
        standby.said("is it alive?")
        one_dies(coordinator, members)
        assert expired(first.wait_for(EXPIRED)) == [the_death(coordinator, members)]

        os.kill(first.process.pid, signal.SIGSTOP)
        standby.said("this run writes the cluster now")
        standby.wait_for(
            "SELECT 1 FROM runs WHERE caught_up AND checkpoint_id != (SELECT min(checkpoint_id) FROM "
            "applied_batches WHERE applied_ms < (SELECT acquired_ms FROM run_leases))"
        )
        os.kill(first.process.pid, signal.SIGCONT)
        assert first.process.wait(60) == 1
        ending = first.log.read_text().splitlines()[-1]
        assert ending.startswith(f"run: cluster default was taken over by process {standby.process.pid} on ")
        assert standby.rows("SELECT 1 FROM incidents WHERE reason = 'group-deleted'") == []
        assert standby.rows("SELECT count(*) FROM groups") == [(1,)]
        assert standby.stop() == 0
