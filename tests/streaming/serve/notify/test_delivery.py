"""Delivery where it is hard: several senders, a flood, bad receivers, and what users of Burrow suffer from."""

import os
import socket
import subprocess
import sys
import threading

import pytest
from sqlalchemy import func, insert, select, update

from dashboards.files import FOLDER
from streaming.config.settings import Serve, Settings
from streaming.serve import missed
from streaming.serve.health import Health
from streaming.serve.leader import LEASE_S, TRUSTED_S, Leader
from streaming.serve.maintenance import Maintenance
from streaming.serve.notify import dead_mans_switch, delivery_worker
from streaming.serve.notify.base import LONGEST_PAUSE_MS, Delivered, Rejected, Retry, retry_after_ms
from streaming.serve.notify.dead_mans_switch import DeadMansSwitch
from streaming.serve.notify.delivery_worker import REMIND_MS, TRIED_ONE_BY_ONE, DeliveryWorker
from streaming.serve.notify.message import MessageEnricher, complete
from streaming.serve.notify.pagerduty import SUMMARY_CHARACTERS, PagerDuty, event
from streaming.serve.notify.webhook import Webhook
from streaming.store import store as store_module
from streaming.store import tables
from streaming.store.database import database_ms
from streaming.store.holder import is_gone, machine
from streaming.store.outbox import Missed
from streaming.store.store import wall_ms
from tests.streaming.serve import alertmanager as real
from tests.streaming.serve.notify.test_notify import CLOSED, PAYLOAD, WRITTEN, alerts, deliver, totals  # noqa: F401
from tests.support.outputs import CLUSTER, START_MS, ended, finding, progress, report, view
from tests.support.waiting import PATIENCE_S, await_true

SEVERITIES = ("info", "warn", "page")


class TestLeader:
    @pytest.fixture
    def pair(self, store, clock):
        return Leader(store.engine, clock), Leader(store.engine, clock)

    def test_only_one_of_two_instances_leads(self, pair):
        assert [leader.refresh() for leader in pair] == [True, False]
        assert [leader.leads() for leader in pair] == [True, False]

    def test_one_that_dies_is_followed_after_the_lease_and_not_before(self, pair, clock):
        """In Burrow a failover gives an incident a new id, and the old one is never closed."""
        first, second = pair
        assert first.refresh()
        assert not second.refresh()
        clock.now_s += LEASE_S - 0.1
        assert not second.refresh()
        clock.now_s += 0.2
        assert second.refresh()

    def test_one_that_cannot_renew_stops_before_another_begins(self, pair, clock):
        first, second = pair
        first.refresh()
        second.refresh()
        clock.now_s += TRUSTED_S
        assert not first.leads()
        assert not second.refresh()

    def test_one_that_was_away_and_replaced_does_not_lead(self, pair, clock):
        first, second = pair
        first.refresh()
        second.refresh()
        clock.now_s += LEASE_S
        assert second.refresh()
        assert not first.refresh()
        clock.now_s += TRUSTED_S
        assert second.refresh()
        assert not first.refresh()

    def test_one_that_goes_makes_room_at_once(self, pair):
        first, second = pair
        first.refresh()
        second.refresh()
        first.resign()
        assert not first.leads()
        assert second.refresh()

    def test_nobody_waits_for_one_that_was_killed_on_this_machine(self, store, clock):
        dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
        killed, next_one = Leader(store.engine, clock), Leader(store.engine, clock)
        killed.name = f"{machine()}/{int(dead.stdout)}/x"
        assert killed.refresh()
        assert next_one.refresh()

    @pytest.mark.parametrize(
        "holder", ["elsewhere/999999999/x", "", "x", "//", f"{machine()}/{os.getpid()}/x", f"{machine()}/1/x"]
    )
    def test_who_may_be_alive_is_waited_for(self, holder):
        assert not is_gone(holder)

    def test_two_that_reach_for_it_at_once_do_not_both_get_it(self, store, clock):
        first, second = Leader(store.engine, clock), Leader(store.engine, clock)
        seen = first._read()
        assert [first._take(seen), second._take(seen)] == [True, False]
        seen = first._read()
        assert [second._take(seen), first._take(seen)] == [True, False]

    def test_many_at_once_in_threads_are_led_by_one(self, store):
        leaders = [Leader(store.engine) for _ in range(4)]
        threads = [threading.Thread(target=leader.refresh) for leader in leaders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(leader.leads() for leader in leaders) == 1


def test_several_serves_on_one_database_send_once(apply, deliver, peer, store):  # noqa: F811
    """In Burrow two instances can hold the lock at once, and each of them sends."""
    apply(*(report(f"g{number}", finding(f"g{number}")) for number in range(20)))
    deliver({"kind": "webhook", "url": peer.url})
    deliver({"kind": "webhook", "url": peer.url})
    await_true(lambda: totals(store) == (0, 0, 20))
    assert len({headers["Idempotency-Key"] for headers in peer.headers}) == len(peer.bodies) == 20


GROUPS = 300


def on_hand(peer):
    """How many alerts each notification held, by severity."""
    return sorted((body["commonLabels"]["severity"], len(body["alerts"])) for body in peer.bodies)


def test_three_hundred_groups_that_fail_at_once_are_one_notification(apply, deliver, peer, store, tmp_path):  # noqa: F811
    """In Burrow 300 bad groups are 300 mails at once, and 300 more each minute (Burrow #205, #538)."""
    if reason := real.missing():
        pytest.skip(reason)
    opened_ms = wall_ms() - 1_000
    with real.alertmanager(tmp_path / "alertmanager", real.shipped(peer.url, group_wait="20s")) as alerts:  # noqa: F811
        found = [(f"{severity}{number}", severity) for number in range(GROUPS) for severity in ("page", "warn")]
        apply(*(report(name, finding(name, severity=severity, opened_ms=opened_ms)) for name, severity in found))
        deliver({"kind": "alertmanager", "urls": (alerts.url,)})
        await_true(lambda: totals(store) == (0, 0, 2 * GROUPS))
        peer.wait_for(lambda peer: len(peer.bodies) >= 2, timeout_s=60)
    assert on_hand(peer) == [("page", GROUPS), ("warn", GROUPS)]


def test_the_policies_for_grafana_make_one_notification_of_three_hundred_groups(peer, tmp_path):
    if reason := real.missing():
        pytest.skip(reason)
    rules = {"info": "muted", "page": "ConsumerGroupIncidentPage", "warn": "ConsumerGroupIncidentWarning"}
    common = {"grafana_folder": FOLDER, "cluster": CLUSTER, "rule": "session-expired"}
    with real.alertmanager(tmp_path / "alertmanager", real.shipped_for_grafana(peer.url)) as alerts:  # noqa: F811
        alerts.fire(
            common | {"alertname": rule, "severity": severity, "group": f"g{number}"}
            for severity, rule in rules.items()
            for number in range(GROUPS)
        )
        peer.wait_for(lambda peer: len(peer.bodies) >= 2)
    assert on_hand(peer) == [("page", GROUPS), ("warn", GROUPS)]


def test_a_group_deleted_while_bad_closes_and_is_told(apply, deliver, peer):  # noqa: F811
    """In Burrow the incident of a group that disappears while bad never closes (Burrow #589, #854)."""
    deliver({"kind": "webhook", "url": peer.url})
    apply(report("orders", finding(), view=view()))
    apply(report("orders", deleted=True, at_ms=START_MS + 1_000))
    peer.wait_for(lambda peer: len(peer.bodies) == 2)
    assert (peer.bodies[1]["transition"], peer.bodies[1]["reason"]) == ("closed", "group-deleted")


def test_a_failed_send_does_not_count_as_sent(apply, deliver, peer, store):  # noqa: F811
    """In Burrow a failed HTTP send is logged, not retried, and still counts as sent."""
    peer.statuses = [500] * 7
    deliver({"kind": "webhook", "url": peer.url})
    apply(report("orders", finding()))
    peer.wait_for(lambda peer: len(peer.bodies) == 8)
    await_true(lambda: totals(store) == (0, 0, 1))


def test_after_an_outage_of_days_nobody_gets_what_is_over_but_one_summary(apply, deliver, peer, store):  # noqa: F811
    """Each opening of the last days was sent, and its closing just after it: a page a death, for deaths long over."""
    days_ago_ms = wall_ms() - 3 * 86_400_000
    severities = {f"g{number}": "page" if number % 3 else "warn" for number in range(30)}
    found = [finding(group, severity=severity, opened_ms=days_ago_ms) for group, severity in severities.items()]
    apply(*(report(one["group"], one) for one in found), progress())
    apply(*(report(one["group"], ended(one, days_ago_ms + 9_000)) for one in found))
    apply(report("still", finding("still")), report("worse", finding("worse")))
    apply(report("worse", finding("worse", severity="page")))
    with store.engine.begin() as connection:
        connection.execute(update(tables.outbox).values(created_ms=database_ms() - 3 * 86_400_000))
    deliver({"kind": "webhook", "url": peer.url}, serve={"public_url": "https://monitor.example"})
    peer.wait_for(lambda peer: len(peer.bodies) >= 3)
    await_true(lambda: {row.receiver: row.pending for row in store.outbox.totals()}.get("", 0) == 0)
    told = sorted((body["rule"], body["group"], body["transition"], body["severity"]) for body in peer.bodies)
    assert told == [
        ("alerts-missed", "", "opened", "warn"),
        ("session-expired", "still", "opened", "warn"),
        ("session-expired", "worse", "escalated", "page"),
    ]
    (summary,) = (body for body in peer.bodies if body["rule"] == "alerts-missed")
    assert summary["summary"].startswith("20 pages and 10 incidents of lesser severity opened and closed while webhook")
    assert summary["runbook_url"] == "https://monitor.example/rules/alerts-missed"
    one_each = missed.finding(Missed(CLUSTER, "webhook", 1, 1, 0, 0, 0), 0)["summary"]
    assert one_each.startswith("1 page and 1 incident of lesser severity opened")
    with store.engine.begin() as connection:
        connection.execute(update(tables.outbox).values(dismissed_ms=database_ms() - 3_600_001))
    peer.wait_for(lambda peer: peer.bodies[-1]["transition"] == "closed")
    assert [body["rule"] for body in peer.bodies if body["transition"] == "closed"] == ["alerts-missed"]


def test_nothing_is_told_twice_while_nothing_changes(apply, deliver, peer, store):  # noqa: F811
    """Burrow cannot send on change only: it repeats itself each interval (Burrow #233, PR #576)."""
    deliver({"kind": "webhook", "url": peer.url})
    for step in range(20):
        apply(report("orders", finding(detail={"step": step}), at_ms=START_MS + step))
    await_true(lambda: totals(store) == (0, 0, 1))
    assert len(peer.bodies) == 1


def test_an_owner_is_named_with_client_and_host_even_when_it_is_gone(apply, deliver, peer):  # noqa: F811
    """Burrow leaves owner and client id blank (Burrow #744)."""
    deliver({"kind": "webhook", "url": peer.url})
    apply(report("orders", finding(), view=view(members=0, state="Empty")))
    peer.wait_for(lambda peer: len(peer.bodies) == 1)
    said = peer.bodies[0]
    assert (said["client_id"], said["client_host"], said["client_software"]) == (
        "worker", "10.0.0.7", "apache-kafka-java 4.3.1",
    )  # fmt: skip
    assert said["unread_partitions"] == [["orders", 0], ["orders", 1]]


def test_a_broken_message_does_not_hold_up_its_batch(apply, deliver, alerts, store, monkeypatch):  # noqa: F811
    """A POST of many alerts is refused as a whole: then each goes alone."""
    monkeypatch.setattr(delivery_worker, "GIVE_UP_AFTER_MS", 0)
    now_ms = wall_ms()
    apply(*(report(f"g{number}", finding(f"g{number}", opened_ms=now_ms - 1_000)) for number in range(5)))
    store.outbox.fan_out({f"alertmanager {alerts.url}": SEVERITIES})
    broken = '{"incident": {"rule": ""}}'
    with store.engine.begin() as connection:
        row = tables.outbox.c.id == store.outbox.due(f"alertmanager {alerts.url}", now_ms)[0].id
        connection.execute(update(tables.outbox).where(row).values(payload=broken))
    deliver({"kind": "alertmanager", "urls": (alerts.url,)})
    await_true(lambda: totals(store)[1:] == (1, 4))


class FailsOn:
    """A receiver that answers 500 whenever a request holds the message about one group."""

    name, severities, messages_at_once = "fails", SEVERITIES, 200

    def __init__(self, group, *, forgets=False):
        self.group, self.forgets, self.delivered = group, forgets, []

    def send(self, payloads):
        groups = [payload["incident"]["group"] for payload in payloads]
        if self.group in groups:
            return Retry("answered 500", after_ms=LONGEST_PAUSE_MS)
        self.delivered += groups
        return Delivered()


class TestFailsOnOne:
    """A receiver that fails on one message got nothing else ever after: that message was always the first to be due."""

    @pytest.fixture
    def worker(self, apply, store, monkeypatch):
        now = [wall_ms()]
        monkeypatch.setattr(delivery_worker, "wall_ms", lambda: now[0])
        leader = Leader(store.engine)
        leader.refresh()
        made = DeliveryWorker(store, FailsOn("g0"), MessageEnricher(store.read, Serve()), leader, threading.Event())
        made.now = now
        apply(*(report(f"g{number}", finding(f"g{number}")) for number in range(5)))
        store.outbox.fan_out({"fails": SEVERITIES})
        return made

    def test_the_others_are_delivered(self, worker, store):
        worker._deliver_due()
        worker.now[0] += LONGEST_PAUSE_MS
        worker._deliver_due()
        assert worker._receiver.delivered == []  # the one that failed may come first again, once
        worker.now[0] += LONGEST_PAUSE_MS
        worker._deliver_due()
        assert sorted(worker._receiver.delivered) == ["g1", "g2", "g3", "g4"]
        assert totals(store) == (1, 0, 4)

    def test_a_new_message_goes_first(self, worker, apply, store):
        worker._deliver_due()
        apply(report("new", finding("new")))
        store.outbox.fan_out({"fails": SEVERITIES})
        worker.now[0] += LONGEST_PAUSE_MS
        worker._deliver_due()
        assert worker._receiver.delivered[0] == "new"

    @pytest.mark.parametrize(("forgets", "pause_ms"), [(False, LONGEST_PAUSE_MS), (True, REMIND_MS)])
    def test_a_receiver_that_forgets_pauses_no_longer_than_between_two_reminders(self, worker, forgets, pause_ms):
        worker._receiver.forgets = forgets
        worker._deliver_due()
        assert worker._paused_until_ms - worker.now[0] == pause_ms


class TestReminders:
    """Alertmanager resolves what it is not reminded of, so a reminder that fails must not take others with it."""

    @pytest.fixture
    def reminded(self, apply, store):
        """Remind a receiver of incidents; return what each request held."""
        leader = Leader(store.engine)
        leader.refresh()

        def _reminded(answer, *, incidents=6, at_once=2):
            apply(*(report(f"g{number}", finding(f"g{number}")) for number in range(incidents)))

            class Answers:
                name, severities, forgets, messages_at_once, asked = "answers", SEVERITIES, True, at_once, []

                def send(self, payloads):
                    groups = [payload["incident"]["group"] for payload in payloads]
                    self.asked.append(groups)
                    return answer(groups)

            enricher = MessageEnricher(store.read, Serve())
            DeliveryWorker(store, Answers(), enricher, leader, threading.Event())._remind_when_due()
            return Answers.asked

        return _reminded

    def test_one_that_is_refused_holds_up_no_other(self, reminded):
        asked = reminded(lambda groups: Rejected("answered 400") if "g2" in groups else Delivered())
        pairs = [groups for groups in asked if len(groups) == 2]
        (bad,) = (groups for groups in pairs if "g2" in groups)
        assert sorted(group for groups in pairs for group in groups) == [f"g{number}" for number in range(6)]
        assert [groups for groups in asked if len(groups) == 1] == [[group] for group in bad]

    def test_a_receiver_that_refuses_all_is_not_asked_about_each(self, reminded):
        """With a wrong token and 400 open incidents it got 402 requests a minute, and new messages waited."""
        asked = reminded(lambda _: Rejected("answered 401"), incidents=30, at_once=15)
        assert [len(groups) for groups in asked] == [15] + [1] * TRIED_ONE_BY_ONE

    def test_one_that_is_accepted_shows_that_the_receiver_does_not_refuse_all(self, reminded):
        alone = []

        def answer(groups):
            if len(groups) == 1:
                alone.append(groups)
            return Delivered() if len(alone) == 1 else Rejected("answered 400")

        reminded(answer, incidents=15, at_once=15)
        assert len(alone) == 15

    def test_a_receiver_that_cannot_accept_any_now_is_left_in_peace(self, reminded):
        assert len(reminded(lambda _: Retry("answered 503"))) == 1


class TestEnd:
    """A worker that is stopped, or whose `serve` no longer leads, sends nothing more: another one may send already."""

    @pytest.fixture(params=["stopped", "replaced"])
    def ending(self, request, apply, store):
        """Return a worker with five messages, whose end comes with the first of them that goes alone."""
        leader, stop = Leader(store.engine), threading.Event()
        leader.refresh()

        class Refuses:
            name, severities, forgets, messages_at_once, sent = "refuses", SEVERITIES, True, 200, []

            def send(self, payloads):
                self.sent.append(len(payloads))
                if len(payloads) == 1:
                    stop.set() if request.param == "stopped" else leader.resign()
                return Rejected("no") if len(payloads) > 1 else Delivered()

        apply(*(report(f"g{number}", finding(f"g{number}")) for number in range(5)))
        store.outbox.fan_out({Refuses.name: SEVERITIES})
        return DeliveryWorker(store, Refuses(), MessageEnricher(store.read, Serve()), leader, stop)

    def test_it_does_not_go_on_with_a_batch_that_was_refused(self, ending, store):
        ending._deliver_due()
        assert ending._receiver.sent == [5, 1]
        assert totals(store) == (4, 0, 1)

    def test_it_does_not_go_on_with_reminders(self, ending):
        ending._receiver.messages_at_once = 1
        ending._remind_when_due()
        assert ending._receiver.sent == [1]


class TestPagerDuty:
    def test_an_incident_is_triggered_and_resolved_under_one_key(self, peer):
        receiver = PagerDuty("r0uting-key", peer.url, SEVERITIES)
        peer.statuses = [202, 202]
        assert receiver.send([PAYLOAD]) == receiver.send([CLOSED]) == Delivered()
        trigger, resolve = peer.bodies
        assert trigger["routing_key"] == "r0uting-key"
        assert (trigger["event_action"], resolve["event_action"]) == ("trigger", "resolve")
        assert trigger["dedup_key"] == resolve["dedup_key"]
        assert trigger["payload"]["severity"] == "warning"
        assert trigger["payload"]["custom_details"]["team"] == "shop"
        assert {"text": "Runbook", "href": "https://r/b"} in trigger["links"]
        assert "r0uting-key" not in receiver.name

    def test_it_keeps_to_the_vendors_limits(self):
        huge = WRITTEN | {
            "incident": WRITTEN["incident"] | dict.fromkeys(("group", "summary", "client_host"), "\x00" * 40_000)
        }
        made = event(complete(huge, None, [], Serve()))
        assert len(made["payload"]["summary"]) <= SUMMARY_CHARACTERS
        assert len(made["payload"]["source"]) <= 255
        assert len(str(made)) < 512_000

    def test_a_label_hides_no_fact(self):
        made = event(PAYLOAD | {"labels": {"cause": "a label", "team": "shop"}})
        details = made["payload"]["custom_details"]
        assert (details["cause"], details["team"]) == (PAYLOAD["incident"]["cause"], "shop")

    @pytest.mark.parametrize(
        ("status", "answer"), [(202, Delivered()), (400, Rejected("answered 400")), (429, Retry("answered 429"))]
    )
    def test_its_answers_are_understood(self, peer, status, answer):
        peer.statuses = [status]
        assert PagerDuty("key", peer.url, SEVERITIES).send([PAYLOAD]) == answer

    def test_it_is_delivered_to_from_the_outbox(self, apply, deliver, peer, store, monkeypatch):  # noqa: F811
        monkeypatch.setenv("PAGER_KEY", "abc\n")
        deliver({"kind": "pagerduty", "routing_key_env": "PAGER_KEY", "url": peer.url})
        apply(report("orders", finding(severity="page")))
        apply(report("orders", ended(finding(severity="page"), START_MS + 9_000)))
        peer.wait_for(lambda peer: len(peer.bodies) == 2)
        assert [(body["event_action"], body["routing_key"]) for body in peer.bodies] == [
            ("trigger", "abc"),
            ("resolve", "abc"),
        ]


@pytest.mark.parametrize(
    ("header", "ms"), [(None, 0), ("7", 7_000), ("soon", 0), ("9" * 30, 300_000), ("-1", 0), ("²", 0)]
)
def test_a_receiver_may_ask_for_a_pause_within_reason(header, ms):
    assert retry_after_ms(header) == ms


class TestHeartbeat:
    @pytest.fixture
    def pulse(self, store, peer, clock):
        leader = Leader(store.engine)
        leader.refresh()
        return DeadMansSwitch(store, peer.url, 60_000, Health(15_000, clock=clock), leader, threading.Event())

    def test_it_beats_while_all_is_well(self, apply, pulse, peer):
        apply(progress())
        assert pulse.beat(wall_ms())
        assert peer.bodies[0]["monitor"] == "group-monitor"

    def test_it_falls_silent_when_a_run_stands_still_or_none_ever_ran(self, apply, pulse, store, peer, clock):
        assert not pulse.beat(wall_ms())
        apply(progress())
        assert pulse.beat(wall_ms())
        clock.watch(lambda: pulse._health.readiness(store.read.runs()), 60)  # as the maintenance thread does
        assert not pulse.beat(wall_ms())
        assert len(peer.bodies) == 1

    def test_it_beats_on_after_an_error_that_nobody_expected(self, apply, pulse, store, peer, monkeypatch):
        apply(progress())
        runs, asked = store.read.runs, []
        monkeypatch.setattr(store.read, "runs", lambda: runs() if asked else asked.append(1) or 1 / 0)
        pulse._every_ms = 10
        pulse.start()
        peer.wait_for(lambda peer: peer.bodies)
        pulse._stop_event.set()
        pulse.join()

    def test_it_begins_as_soon_as_this_serve_leads(self, apply, pulse, peer, monkeypatch):
        """The first heartbeat after a start was often lost, and the next came a minute later."""
        apply(progress())
        pulse._leader.resign()
        looked, well = threading.Event(), pulse._health.readiness
        monkeypatch.setattr(dead_mans_switch, "AGAIN_S", 0.01)
        monkeypatch.setattr(pulse._health, "readiness", lambda runs: looked.set() or well(runs))
        pulse.start()
        assert looked.wait(PATIENCE_S)
        pulse._leader.refresh()
        peer.wait_for(lambda peer: peer.bodies)
        pulse._stop_event.set()
        pulse.join()

    def test_only_the_leader_beats(self, apply, pulse):
        apply(progress())
        pulse._leader.resign()
        assert not pulse.beat(wall_ms())


def test_a_serve_that_follows_changes_nothing(apply, store):
    Leader(store.engine).refresh()
    apply(progress(), report("orders", finding()))
    settings = Settings(cluster=CLUSTER)
    health = Health(-1)  # whatever is seen stands still
    Maintenance(store, settings, health, [], Leader(store.engine), threading.Event()).work(wall_ms())
    assert store.read.incidents(state="open").total == 1
    assert store.outbox.totals()[0].receiver == ""


class TestPruning:
    """It is done beside the lease and the messages, which must not wait for it."""

    @pytest.fixture
    def maintenance(self, store, settings):
        return Maintenance(store, settings, Health(15_000), [], Leader(store.engine), threading.Event())

    def test_it_is_spread_over_many_turns(self, maintenance, store, monkeypatch):
        monkeypatch.setattr(store_module, "PRUNED_AT_ONCE", 10)
        rows = [{"group_key": "g", "generation": n, "at_ms": n, "body": "{}"} for n in range(35)]
        with store.engine.begin() as connection:
            connection.execute(insert(tables.generations), rows)
        left = []
        for _ in range(5):
            maintenance.work(wall_ms())
            with store.engine.connect() as connection:
                left.append(connection.execute(select(func.count()).select_from(tables.generations)).scalar())
        assert left == [25, 15, 5, 0, 0]

    def test_it_is_tried_again_at_once_after_an_error(self, maintenance, store, monkeypatch):
        asked = []
        monkeypatch.setattr(store, "prune", lambda before_ms: asked.append(before_ms) or 1 / 0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                maintenance.work(wall_ms())
        assert len(asked) == 2


@pytest.mark.parametrize("garbage", [b"", b"\x00\xff\x00", b"HTTP/1.1 abc\r\n\r\n", b"SSH-2.0-OpenSSH\r\n"])
def test_a_receiver_that_answers_garbage_is_tried_again(garbage):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            taken, _ = listener.accept()
            taken.recv(65_536)
            taken.sendall(garbage)
            taken.close()

        thread = threading.Thread(target=answer)
        thread.start()
        said = Webhook(f"http://127.0.0.1:{listener.getsockname()[1]}", SEVERITIES).send([PAYLOAD])
        thread.join()
    assert isinstance(said, Retry)
