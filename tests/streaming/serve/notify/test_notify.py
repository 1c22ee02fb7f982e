"""From the outbox to somebody: real HTTP peers, a real Alertmanager, and receivers that misbehave."""

import html
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType

import pytest
from sqlalchemy import select
from tenacity import wait_fixed

from streaming.config.settings import ConfigError, Serve, Settings, StoreSettings
from streaming.serve.health import Health
from streaming.serve.leader import Leader
from streaming.serve.maintenance import Maintenance
from streaming.serve.notify import base, delivery_worker
from streaming.serve.notify.alertmanager import EXPIRE_MS, LABEL_CHARACTERS, Alertmanager, alert
from streaming.serve.notify.base import SEVERITIES, Delivered, Rejected, Retry, at_least
from streaming.serve.notify.delivery_worker import DeliveryWorker, backoff_ms
from streaming.serve.notify.log import Log
from streaming.serve.notify.message import MessageEnricher, complete
from streaming.serve.notify.receivers import receivers_of
from streaming.serve.notify.webhook import Webhook
from streaming.serve.runbooks import runbook
from streaming.store import Store, tables
from streaming.store.store import wall_ms
from tests.streaming.serve import alertmanager as real
from tests.streaming.serve.conftest import STALLED_MS, sign_of_life
from tests.support.outputs import CLUSTER, START_MS, ended, finding, progress, report, view
from tests.support.waiting import PATIENCE_S, await_true

WRITTEN = {
    "incident": {
        "kind": "incident", "transition": "opened", "incident_id": "i-1", "rule": "session-expired", "severity": "warn",
        "cluster": "prod", "group": "orders", "member_id": "m-1", "instance_id": None, "client_id": "worker",
        "client_host": "10.0.0.7", "generation": 3, "broker": "broker-1", "evidence": "observed",
        "cause": "session-timeout", "deadline_ms": START_MS, "at_ms": START_MS + 500, "summary": "m-1 is gone",
    },
    "opened_ms": START_MS, "closed_ms": None, "late": False, "labels": {"team": "shop"}, "runbook_url": "https://r/b",
}  # fmt: skip
PAYLOAD = complete(WRITTEN, None, [], Serve())
CLOSED = PAYLOAD | {
    "closed_ms": START_MS + 9_000,
    "incident": WRITTEN["incident"] | {"transition": "closed", "reason": "rejoined", "at_ms": START_MS + 9_000},
}


@pytest.fixture
def deliver(store, settings, monkeypatch) -> Iterator[Callable[..., None]]:
    """Start maintenance and delivery workers for some [[notify]] blocks; stopped at the end. Retries come at once."""
    monkeypatch.setattr(delivery_worker, "WAIT", wait_fixed(0.01))
    monkeypatch.setattr(delivery_worker, "POLL_S", 0.02)
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def _deliver(*blocks: dict, stalled_ms: int = STALLED_MS, serve: Mapping[str, str] = MappingProxyType({})) -> None:
        given = settings.model_dump()
        configured = Settings.model_validate(given | {"notify": blocks, "serve": given["serve"] | serve})
        receivers, leader, enricher = (
            receivers_of(configured),
            Leader(store.engine),
            MessageEnricher(store.read, configured.serve),
        )
        health = Health(stalled_ms)
        new: list[threading.Thread] = [Maintenance(store, configured, health, receivers, leader, stop)]
        new += [DeliveryWorker(store, receiver, enricher, leader, stop) for receiver in receivers]
        for thread in new:
            thread.start()
        threads.extend(new)

    yield _deliver
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def totals(store: Store) -> tuple[int, int, int]:
    """(pending, dead, delivered) over all receivers."""
    rows = store.outbox.totals()
    return sum(row.pending for row in rows), sum(row.dead for row in rows), sum(row.delivered for row in rows)


class TestWebhook:
    def test_it_gets_the_contracts_object_once_for_each_transition(self, apply, deliver, peer, store):
        deliver({"kind": "webhook", "url": peer.url})
        apply(report("orders", finding()))
        peer.wait_for(lambda peer: len(peer.bodies) == 1)
        apply(report("orders", finding(severity="page")))
        apply(report("orders", ended(finding(severity="page"), START_MS + 9_000)))
        peer.wait_for(lambda peer: len(peer.bodies) == 3)
        assert [body["transition"] for body in peer.bodies] == ["opened", "escalated", "closed"]
        assert [body["severity"] for body in peer.bodies] == ["warn", "page", "page"]
        opened = peer.bodies[0]
        assert (opened["kind"], opened["member_id"], opened["labels"]) == ("incident", "m-1", {"team": "shop"})
        assert len({headers["Idempotency-Key"] for headers in peer.headers}) == 3
        await_true(lambda: totals(store) == (0, 0, 3))

    def test_an_incident_that_opens_again_is_no_repeated_message(self, apply, deliver, peer):
        deliver({"kind": "webhook", "url": peer.url})
        stuck = finding(rule="rebalance-stuck")
        for told in ([stuck], [], [stuck]):
            apply(report("orders", *told, at_ms=START_MS + 1_000))
        peer.wait_for(lambda peer: len(peer.bodies) == 3)
        assert [body["transition"] for body in peer.bodies] == ["opened", "closed", "opened"]
        assert len({headers["Idempotency-Key"] for headers in peer.headers}) == 3

    def test_a_server_error_is_retried_and_nothing_overtakes(self, apply, deliver, peer, store):
        peer.statuses = [500, 503, 429]
        deliver({"kind": "webhook", "url": peer.url})
        apply(report("orders", finding()))
        apply(report("orders", ended(finding(), START_MS + 9_000)))
        peer.wait_for(lambda peer: len(peer.bodies) == 5)
        assert [body["transition"] for body in peer.bodies] == ["opened"] * 4 + ["closed"]
        await_true(lambda: totals(store) == (0, 0, 2))

    def test_what_is_refused_for_long_is_given_up_and_the_next_comes(self, apply, deliver, peer, store, monkeypatch):
        monkeypatch.setattr(delivery_worker, "GIVE_UP_AFTER_MS", 200)
        peer.statuses = [400] * 100_000
        deliver({"kind": "webhook", "url": peer.url})
        apply(report("orders", finding()))
        await_true(lambda: totals(store) == (0, 1, 0))
        assert len(peer.bodies) > 1
        peer.statuses.clear()
        apply(report("orders", finding(member="m-2")))
        await_true(lambda: totals(store) == (0, 1, 1))

    def test_a_refusal_of_a_few_minutes_loses_nothing(self, apply, deliver, peer, store):
        """An ingress that has no route yet answers 404, and a token that was just changed makes a 401."""
        peer.statuses = [404, 503, 401] * 5
        deliver({"kind": "webhook", "url": peer.url})
        apply(report("orders", finding()))
        await_true(lambda: totals(store) == (0, 0, 1))
        assert len(peer.bodies) == 16

    def test_one_that_never_answers_delays_no_other(self, apply, deliver, peer, store, monkeypatch):
        monkeypatch.setattr(base, "TIMEOUT_S", (1, 600))
        peer.statuses = [None]
        deliver({"kind": "webhook", "url": peer.url}, {"kind": "log"})
        apply(report("orders", finding()))
        peer.wait_for(lambda peer: len(peer.bodies) == 1)
        await_true(lambda: totals(store) == (1, 0, 1))
        peer.released.set()
        await_true(lambda: totals(store) == (0, 0, 2))

    def test_one_that_never_answers_is_asked_again_after_the_timeout(self, peer, monkeypatch):
        monkeypatch.setattr(base, "TIMEOUT_S", (1, 0.1))
        peer.statuses = [None]
        assert Webhook(peer.url, SEVERITIES).send([PAYLOAD]) == Retry("ReadTimeout")
        assert Webhook(peer.url, SEVERITIES).send([PAYLOAD]) == Delivered()

    @pytest.mark.parametrize(
        ("status", "answer"),
        [(200, Delivered()), (204, Delivered()), (302, Rejected("answered 302")), (404, Rejected("answered 404"))]
        + [(status, Retry(f"answered {status}")) for status in (408, 425, 429, 500, 502, 503)],
    )
    def test_the_status_decides(self, peer, status, answer):
        peer.statuses = [status]
        assert Webhook(peer.url, SEVERITIES).send([PAYLOAD]) == answer

    def test_nobody_there_is_a_retry_that_keeps_the_address_secret(self):
        webhook = Webhook("http://127.0.0.1:9/services/s3cret?token=s3cret", SEVERITIES)
        answer = webhook.send([PAYLOAD])
        assert isinstance(answer, Retry)
        assert "s3cret" not in answer.reason + webhook.name

    def test_the_address_may_stand_in_a_file(self, apply, deliver, peer, tmp_path):
        (tmp_path / "url").write_text(peer.url + "\n")
        deliver({"kind": "webhook", "url_file": tmp_path / "url"})
        apply(report("orders", finding()))
        peer.wait_for(lambda peer: len(peer.bodies) == 1)


def test_a_receiver_that_breaks_loses_its_message_not_its_worker(apply, deliver, peer, store, monkeypatch):
    original = Webhook.send

    def broken(self, payloads):
        if payloads[0]["incident"]["member_id"] == "m-1":
            raise ZeroDivisionError
        return original(self, payloads)

    monkeypatch.setattr(Webhook, "send", broken)
    monkeypatch.setattr(delivery_worker, "GIVE_UP_AFTER_MS", 0)
    deliver({"kind": "webhook", "url": peer.url})
    apply(report("orders", finding()), report("other", finding("other", "m-2")))
    peer.wait_for(lambda peer: len(peer.bodies) == 1)
    await_true(lambda: totals(store) == (0, 1, 1))


class TestSeverity:
    def test_a_receiver_gets_what_is_bad_enough_for_it(self, apply, deliver, peer, store):
        deliver({"kind": "webhook", "url": peer.url, "min_severity": "page"}, {"kind": "log", "min_severity": "info"})
        apply(report("orders", finding(), finding(member="m-2", severity="info")))
        await_true(lambda: totals(store) == (0, 0, 2))
        apply(report("orders", finding(severity="page"), finding(member="m-2", severity="info")))
        peer.wait_for(lambda peer: len(peer.bodies) == 1)
        assert peer.bodies[0]["transition"] == "escalated"

    def test_severities_are_ordered(self):
        assert at_least("info") == ("info", "warn", "page")
        assert at_least("page") == ("page",)


def test_the_waiting_time_grows_to_a_limit_and_is_spread():
    assert 500 <= backoff_ms(1) <= 1_000
    assert max(backoff_ms(3) for _ in range(200)) > 2_000
    assert all(500 <= backoff_ms(1_000) <= 300_000 for _ in range(50))
    assert len({backoff_ms(5) for _ in range(20)}) > 1


def test_a_page_that_waits_for_a_wrong_address_goes_to_the_right_one(apply, deliver, peer, store):
    """The address is in the receiver's name, so the page was given up, and only its end was sent."""
    apply(report("orders", finding()))
    store.outbox.fan_out({"webhook http://wrong": SEVERITIES})
    deliver({"kind": "webhook", "url": peer.url})
    peer.wait_for(lambda peer: len(peer.bodies) == 1)
    await_true(lambda: totals(store) == (0, 1, 1))
    apply(report("orders", ended(finding(), START_MS + 9_000)))
    peer.wait_for(lambda peer: len(peer.bodies) == 2)
    assert [body["transition"] for body in peer.bodies] == ["opened", "closed"]
    assert [body["group"] for body in peer.bodies] == ["orders"] * 2


def test_a_receiver_that_refuses_is_told_again_after_a_reload_and_not_before(apply, store, settings):
    """Else it would get the same message for ever, and each would be given up and reported as lost."""
    leader, receiver = Leader(store.engine), Log(SEVERITIES)
    apply(report("orders", finding()))

    def begun():
        return Maintenance(store, settings, Health(STALLED_MS), [receiver], leader, threading.Event())

    def gives_up():
        due = [message.id for message in store.outbox.due(receiver.name, wall_ms())]
        store.outbox.failed(due, "answered 400", None)
        return len(due)

    running = begun()
    for due in (1, 0, 0):
        running.work(wall_ms())
        assert gives_up() == due
    reloaded = begun()
    for due in (1, 0):
        reloaded.work(wall_ms())
        assert gives_up() == due


LOGS = ({"kind": "log", "min_severity": "page"}, {"kind": "log", "min_severity": "info"})


def test_two_blocks_for_one_receiver_are_an_error():
    with pytest.raises(ConfigError, match="named more than once: log"):
        receivers_of(Settings.model_validate({"notify": LOGS}))


def test_two_users_of_one_alertmanager_are_two_receivers_with_no_secret_in_a_name():
    urls = ["http://u:one@am:9093", "http://u:two@am:9093", "http://am:9093"]
    blocks = {"notify": ({"kind": "alertmanager", "urls": tuple(urls)},)}
    names = {receiver.name for receiver in receivers_of(Settings.model_validate(blocks))}
    assert len(names) == 3
    assert "alertmanager http://am:9093" in names
    assert not any("one" in name or "two" in name for name in names)


class TestAlert:
    def test_its_labels_are_few_and_its_annotations_say_who_and_why(self):
        made = alert(PAYLOAD, START_MS + 1_000)
        assert made["labels"] == {
            "alertname": "session-expired",
            "severity": "warn",
            "cluster": "prod",
            "group": "orders",
            "team": "shop",
            "incident": "i-1",
        }
        wanted = {"summary": "m-1 is gone", "member_id": "m-1", "client_host": "10.0.0.7", "cause": "session-timeout"}
        assert made["annotations"].items() >= wanted.items()
        assert made["annotations"]["deadline"] == "2026-09-21T14:13:20.000+00:00"
        assert "instance_id" not in made["annotations"]

    @pytest.mark.parametrize(
        ("payload", "now_ms", "started_ms", "ends_ms"),
        [
            (PAYLOAD, 1_000, 0, 1_000 + EXPIRE_MS),
            (PAYLOAD, -600_000, -600_000, -600_000 + EXPIRE_MS),  # the broker's clock is ten minutes ahead
            (CLOSED, 60_000, 0, 9_000),
            (CLOSED, 5_000, 0, 5_000),
            (CLOSED, -600_000, -600_000, -600_000 + 1),
            (CLOSED | {"closed_ms": START_MS}, 5_000, 0, 1),
        ],
    )
    def test_it_began_by_now_and_ends_after_that_while_open_in_the_future(self, payload, now_ms, started_ms, ends_ms):
        """Alertmanager refuses an alert that ends before it begins."""
        made = alert(payload, START_MS + now_ms)
        instants = (datetime.fromisoformat(made[name]).timestamp() * 1_000 for name in ("startsAt", "endsAt"))
        assert [each - START_MS for each in instants] == [started_ms, ends_ms]

    def test_an_absurd_instant_is_bounded(self):
        absurd = PAYLOAD | {"opened_ms": -5, "incident": PAYLOAD["incident"] | {"deadline_ms": 2**62}}
        assert alert(absurd, START_MS)["annotations"]["deadline"].startswith("9999-")

    def test_a_huge_name_is_cut(self):
        huge = PAYLOAD | {"incident": PAYLOAD["incident"] | {"group": "g" * 32_000, "summary": "\ud800\x00" * 2_000}}
        made = alert(huge, START_MS)
        assert len(made["labels"]["group"]) == LABEL_CHARACTERS
        assert json.dumps(made).isascii()


@pytest.fixture
def alerts(tmp_path, peer) -> Iterator[real.Running]:
    if reason := real.missing():
        pytest.skip(reason)
    with real.alertmanager(tmp_path / "alertmanager", real.quick(peer.url)) as running:
        yield running


class TestRealAlertmanager:
    def test_an_incident_fires_escalates_and_resolves(self, apply, deliver, alerts, peer):
        now_ms = wall_ms()
        found = finding(opened_ms=now_ms - 1_000)
        deliver({"kind": "alertmanager", "urls": (alerts.url,)})
        apply(report("orders", found))
        await_true(lambda: alerts.alerts().keys() == {("orders", "warn")})
        assert alerts.alerts()["orders", "warn"]["annotations"]["member_id"] == "m-1"
        apply(report("orders", found | {"severity": "page"}, at_ms=now_ms))
        await_true(lambda: alerts.alerts().keys() == {("orders", "page")})
        apply(report("orders", ended(found | {"severity": "page"}, now_ms)))
        await_true(lambda: alerts.alerts() == {})
        peer.wait_for(lambda peer: peer.bodies[-1]["status"] == "resolved")
        assert peer.bodies[0]["status"] == "firing"

    def test_an_incident_that_opens_again_fires_again(self, apply, deliver, alerts):
        stuck = finding(rule="rebalance-stuck", opened_ms=wall_ms() - 1_000)
        deliver({"kind": "alertmanager", "urls": (alerts.url,)})
        for found in ([stuck], [], [stuck]):
            apply(report("orders", *found, at_ms=wall_ms()))
            await_true(lambda fires=bool(found): alerts.alerts().keys() == ({("orders", "warn")} if fires else set()))

    def test_one_of_a_broker_whose_clock_is_ahead_fires_too(self, apply, deliver, alerts, store):
        deliver({"kind": "alertmanager", "urls": (alerts.url,)})
        apply(report("orders", finding(opened_ms=wall_ms() + 600_000)))
        await_true(lambda: alerts.alerts().keys() == {("orders", "warn")})
        assert totals(store)[1] == 0

    def test_two_members_of_a_group_are_two_alerts_in_one_notification_group(self, apply, deliver, alerts, peer):
        now_ms = wall_ms()
        first, second = finding(opened_ms=now_ms - 1_000), finding(member="m-2", opened_ms=now_ms - 1_000)
        deliver({"kind": "alertmanager", "urls": (alerts.url,)})
        apply(report("orders", first, second))
        peer.wait_for(lambda peer: any(len(body["alerts"]) == 2 for body in peer.bodies))
        apply(report("orders", ended(first, now_ms), second))
        await_true(lambda: [alert["annotations"]["member_id"] for alert in alerts.alerts().values()] == ["m-2"])

    def test_severities_have_the_words_that_somebody_routes_by(self, apply, deliver, alerts):
        words = {"warn": "warning", "page": "critical"}
        deliver({"kind": "alertmanager", "urls": (alerts.url,), "severity_labels": words})
        opened = finding(opened_ms=wall_ms() - 1_000)
        apply(report("orders", opened))
        await_true(lambda: alerts.alerts().keys() == {("orders", "warning")})
        apply(report("orders", opened | {"severity": "page"}))
        await_true(lambda: alerts.alerts().keys() == {("orders", "critical")})

    def test_one_word_for_two_severities_leaves_an_escalated_alert_firing(self):
        escalated = PAYLOAD | {"incident": PAYLOAD["incident"] | {"transition": "escalated", "severity": "page"}}
        own, one = (Alertmanager("http://a", SEVERITIES, words) for words in ({}, dict.fromkeys(SEVERITIES, "bad")))
        assert len(own._alerts(escalated, START_MS)) == 3
        (firing,) = one._alerts(escalated, START_MS)
        assert firing["labels"]["severity"] == "bad"

    def test_hostile_names_are_accepted_and_shown_unchanged(self, apply, deliver, alerts, store):
        names = ('a"}{\\', "日本 \u202ex", "a\nb", "{{ .Labels }}")
        deliver({"kind": "alertmanager", "urls": (alerts.url,)})
        apply(*(report(name, finding(name, opened_ms=wall_ms() - 1_000, summary=name)) for name in names))
        await_true(lambda: alerts.alerts().keys() == {(name, "warn") for name in names})
        assert totals(store)[1] == 0

    def test_an_alertmanager_that_forgot_is_told_again(self, apply, store, settings, alerts):
        """A reminder repeats everything open, so one that lost its memory, or was down, catches up."""
        apply(
            report("orders", finding(opened_ms=wall_ms() - 1_000)), report("quiet", finding("quiet", severity="info"))
        )
        firing = store.read.firing(at_least("warn"))
        assert [payload["incident"]["group"] for payload in firing] == ["orders"]
        told = [MessageEnricher(store.read, settings.serve).complete(payload) for payload in firing]
        assert Alertmanager(alerts.url, at_least("warn")).send(told) == Delivered()
        assert alerts.alerts().keys() == {("orders", "warn")}

    def test_all_addresses_get_every_alert_though_one_is_down(self, apply, deliver, alerts, store):
        deliver({"kind": "alertmanager", "urls": ("http://127.0.0.1:9", alerts.url)})
        apply(report("orders", finding(opened_ms=wall_ms() - 1_000)))
        await_true(lambda: alerts.alerts().keys() == {("orders", "warn")})
        await_true(lambda: totals(store)[::2] == (1, 1))


class TestMonitorStalled:
    def test_a_run_that_stands_still_is_a_page_until_it_is_back(self, apply, deliver, peer, store):
        apply(progress())
        deliver({"kind": "webhook", "url": peer.url}, stalled_ms=200)
        peer.wait_for(lambda peer: len(peer.bodies) == 1)
        opened = peer.bodies[0]
        assert (opened["rule"], opened["severity"], opened["transition"]) == ("monitor-stalled", "page", "opened")
        assert (opened["cluster"], opened["group"]) == (CLUSTER, "")
        sign_of_life(store)
        peer.wait_for(lambda peer: len(peer.bodies) == 2)
        assert (peer.bodies[1]["transition"], peer.bodies[1]["incident_id"]) == ("closed", opened["incident_id"])
        assert store.read.incidents(state="open").total == 0

    @pytest.fixture
    def maintenance(self, store, settings, clock):
        """Make another delivery worker, as a `serve` that starts."""
        leader = Leader(store.engine)

        def make() -> Maintenance:
            return Maintenance(store, settings, Health(15_000, clock=clock), [], leader, threading.Event())

        return make

    @staticmethod
    def stand_still(maintenance, clock):
        maintenance.work(wall_ms())
        clock.watch(lambda: maintenance.work(wall_ms()), 16)

    def test_run_does_not_close_what_serve_opened(self, apply, store, maintenance, clock):
        apply(progress())
        self.stand_still(maintenance(), clock)
        assert store.read.incidents(state="open").total == 1
        store._open.clear()
        assert apply(report("")).transitions == ()
        assert store.read.incidents(state="open").total == 1

    def test_a_restarted_serve_adopts_its_own_incident_and_says_nothing_before_it_knows(
        self, apply, store, maintenance, clock
    ):
        """The restarted one closed the page, and opened it again fifteen seconds later."""
        apply(progress())
        self.stand_still(maintenance(), clock)
        restarted = maintenance()
        restarted.work(wall_ms())
        assert store.read.incidents(state="open").total == 1
        self.stand_still(restarted, clock)
        assert [incident["transition"] for incident in store.read.incidents().objects] == ["opened"]
        apply(progress())
        restarted.work(wall_ms())
        assert store.read.incidents(state="open").total == 0

    @pytest.mark.parametrize(
        ("silent", "kept", "is_gone"), [(3, 1, False), (8, 1, True), (29, 30, False), (31, 30, True)]
    )
    def test_a_cluster_that_nobody_watches_any_more_is_forgotten(
        self, apply, store, settings, clock, silent, kept, is_gone
    ):
        """It was renamed: it kept `/readyz` at 503 and its page open, and no heartbeat of the switch was sent."""
        for cluster in (CLUSTER, "old"):
            apply(progress(), report("orders", finding(cluster=cluster), view=view()), cluster=cluster)
        sign_of_life(store, silent * 86_400_000, "old")
        own = settings.model_copy(update={"store": StoreSettings(retention_days=kept)})
        health, leader = Health(15_000, clock=clock), Leader(store.engine)
        receivers = [Log(at_least("warn"))]
        self.stand_still(Maintenance(store, own, health, receivers, leader, threading.Event()), clock)
        assert [run.cluster for run in store.read.runs()] == ([CLUSTER] if is_gone else ["old", CLUSTER])
        ended = store.read.incidents(cluster="old", state="closed").objects
        assert [(one["rule"], one["reason"]) for one in ended] == ([("session-expired", "superseded")] * is_gone)
        assert store.read.incidents(cluster="old", state="open").total == (0 if is_gone else 2)
        assert (store.read.group("old", "orders") is None) is is_gone
        assert store.read.group(CLUSTER, "orders") is not None
        with store.engine.connect() as connection:
            told = select(tables.outbox.c.transition).where(tables.outbox.c.payload.contains('"old"'))
            assert connection.execute(told).scalars().all() == ["opened", "closed" if is_gone else "opened"]

    def test_a_cluster_is_forgotten_at_once_by_the_statement_of_the_runbook(self, apply, store, maintenance, clock):
        for cluster in (CLUSTER, "old-name"):
            apply(progress(), cluster=cluster)
        statement = re.search("UPDATE runs .*;", html.unescape(runbook("monitor-stalled")))[0]
        with store.engine.begin() as connection:
            connection.exec_driver_sql(statement)
        self.stand_still(maintenance(), clock)
        assert [run.cluster for run in store.read.runs()] == [CLUSTER]

    def test_a_run_gets_its_time_when_serve_itself_has_just_started(self, apply, store, maintenance, clock):
        apply(progress(), now_ms=START_MS)
        started = maintenance()
        started.work(wall_ms())
        clock.watch(lambda: started.work(wall_ms()), 14)
        assert store.read.incidents().total == 0

    def test_no_clock_that_is_set_makes_a_page(self, apply, store, maintenance, clock):
        """The database's, say, by a day: whatever the row says, it is seen to change."""
        watching = maintenance()
        for age_ms in (0, 86_400_000, -86_400_000, 0):
            apply(progress())
            sign_of_life(store, age_ms)
            watching.work(wall_ms())
            clock.now_s += 10
        assert store.read.incidents().total == 0

    def test_one_that_follows_knows_what_it_has_seen_when_it_takes_over(
        self, apply, store, settings, maintenance, clock
    ):
        first, leader = maintenance(), Leader(store.engine)
        apply(progress())
        first.work(wall_ms())
        follower = Maintenance(store, settings, Health(15_000, clock=clock), [], leader, threading.Event())
        self.stand_still(follower, clock)
        assert store.read.incidents().total == 0
        first._leader.resign()
        follower.work(wall_ms())
        assert store.read.incidents(state="open").total == 1
