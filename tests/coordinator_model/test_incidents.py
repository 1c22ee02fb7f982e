"""Findings to incidents: what opens, escalates, closes, and what a monitor that starts afresh makes of what is open."""

import json
from dataclasses import replace

import pytest

from coordinator_model.group_report import GroupReport
from coordinator_model.incidents import Incident, Kind, diff, fold, ids_in, in_order, incident_id, to_contract
from coordinator_model.rules.registry import LASTING_RULES, UNEXPLAINED_RULES

OPENED_MS, AT_MS = 1_000_000, 1_000_500
MINUTE_MS = 60_000


def finding(**changes):
    return {
        "rule": "session-expired",
        "severity": "warn",
        "cluster": "c",
        "group": "g",
        "subject": "m2",
        "incarnation": "0/m2",
        "opened_ms": OPENED_MS,
        "at_ms": AT_MS,
        "member_id": "m2",
        "instance_id": None,
        "client_id": "worker",
        "client_host": "10.0.0.8",
        "client_software": None,
        "connection": "k:1",
        "generation": 3,
        "broker": "broker-1",
        "evidence": "observed",
        "cause": "session-timeout",
        "deadline_ms": OPENED_MS,
        "summary": "m2 is gone",
        "partitions": [["t", 1]],
        "detail": {},
        "closed_reason": None,
        "closed_ms": None,
        **changes,
    }


def member(name="m1", partitions=(0, 1), **changes):
    return {
        "member_id": name,
        "instance_id": None,
        "client_id": "app",
        "client_host": "10.0.0.7",
        "connection": "k:0",
        "joined_ms": 0,
        "generation": 3,
        "last_heartbeat_ms": AT_MS,
        "assignment": [{"topic": "t", "partitions": list(partitions)}],
        "partitions_left_out": 0,
        "topics": ["t"],
        **changes,
    }


def report(
    *findings,
    at_ms=AT_MS + 1_000,
    members=(),
    stable_ms=0,
    state="Stable",
    broker="broker-1",
    type_="classic",
    generation=3,
    announced_by="",
    **changes,
):
    view = {"type": type_, "state": state, "coordinator": broker, "members": list(members)}
    view |= {"stable_since_ms": stable_ms, "generation": generation, "announced_by": announced_by}
    values = {"view": view, "findings": list(findings), "holder": "0"} | changes
    return GroupReport(cluster="c", group="g", at_ms=at_ms, **values)


def opened(**changes):
    [transition] = diff([], report(finding(**changes), at_ms=AT_MS))
    assert transition.kind is Kind.OPENED
    return transition.incident


def steps(open_incidents, told):
    return [(t.kind.value, t.incident.severity, t.incident.reason, t.at_ms) for t in diff(open_incidents, told)]


# ------------------------------------------------------------------------------------------------ while it is found


def test_a_finding_opens_once_at_the_instant_that_decided_it():
    incident = opened()
    assert (incident.opened_ms, incident.at_ms, incident.reason) == (OPENED_MS, AT_MS, None)
    assert steps([incident], report(finding())) == []


def test_worse_escalates_and_better_does_not_calm_it():
    incident = opened()
    assert steps([incident], report(finding(severity="page"))) == [("escalated", "page", None, AT_MS + 1_000)]
    assert steps([opened(severity="page")], report(finding())) == []


def test_better_evidence_updates_and_tells_nobody():
    [told] = diff([opened(evidence="inferred")], report(finding(deadline_ms=OPENED_MS + 7)))
    assert (told.kind, told.incident.evidence, told.incident.deadline_ms) == (Kind.UPDATED, "observed", OPENED_MS + 7)
    assert told.incident.opened_ms == OPENED_MS


# what the timer's verdict says when it is found again -> the broker and the detail that the incident has then
AGAIN = {
    "the same verdict, after another broker took over": ({}, "broker-1", {"deadline_from_ms": 1, "total": 2}),
    "another deadline": ({"deadline_ms": OPENED_MS + 7}, "broker-2", {"total": 2}),
    "the removal, which is seen by now": ({"evidence": "observed"}, "broker-2", {"total": 2}),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_timers_verdict_that_is_found_again_stays_that_of_its_broker(name):
    changes, broker, detail = AGAIN[name]
    known = opened(evidence="inferred", detail={"deadline_from_ms": 1, "total": 1})
    again = finding(**{"evidence": "inferred", "broker": "broker-2", "detail": {"total": 2}, **changes})
    [told] = diff([known], report(again))
    assert (told.incident.broker, told.incident.detail) == (broker, detail)


def test_a_finding_that_is_over_opens_and_closes():
    over = finding(closed_reason="rejoined", closed_ms=AT_MS + 5)
    assert steps([], report(over)) == [("opened", "warn", None, AT_MS), ("closed", "warn", "rejoined", AT_MS + 5)]


def test_it_never_closes_before_it_opened():
    [_, closed] = diff([], report(finding(closed_reason="rejoined", closed_ms=OPENED_MS)))
    assert closed.at_ms == AT_MS


@pytest.mark.parametrize("field", ["cluster", "group", "rule", "subject", "incarnation"])
def test_another_one_is_another_incident(field):
    others = finding(**{field: "another"})
    assert [t.kind for t in diff([opened()], report(finding(), others))] == [Kind.OPENED]


def test_the_id_is_of_who_and_when_never_of_the_decision():
    assert opened().incident_id == opened(at_ms=AT_MS + 9_999, severity="page", evidence="inferred").incident_id
    assert opened().incident_id != opened(opened_ms=OPENED_MS + 1).incident_id
    assert incident_id("a", "b,c", "r", "s", "0", 1) != incident_id("a,b", "c", "r", "s", "0", 1)


def test_an_incident_goes_through_json_unharmed():
    incident = opened(group='g"\\\0', summary="\U0001f600")
    assert Incident.from_dict(json.loads(json.dumps(incident.as_dict())) | {"of a later version": 1}) == incident


def test_the_contracts_object_has_a_reason_only_when_it_closes():
    [transition] = diff([], report(finding()))
    assert to_contract(transition)["kind"] == "incident"
    assert "reason" not in to_contract(transition)


# ---------------------------------------------------------------------------------------- adopted: open, not found

M2_BACK = member("m2", joined_ms=AT_MS + 100)
LONG_AFTER = AT_MS + MINUTE_MS + 10
# what the incident says, the report -> how it ends
ADOPTED = {
    "silence alone ends nothing": ({}, report(), None),
    "the same member is accepted again": ({}, report(members=[M2_BACK]), "rejoined"),
    "the same member is heard again": ({}, report(members=[member("m2", last_heartbeat_ms=OPENED_MS + 1)]), "rejoined"),
    "the verdict was wrong: the broker accepts it": (
        {"evidence": "inferred"},
        report(members=[member("m2", last_heartbeat_ms=OPENED_MS + 1)]),
        "refuted",
    ),
    "the verdict was wrong: it joins the next generation": (
        {"evidence": "inferred"},
        report(members=[member("m2", last_heartbeat_ms=None, generation=4)]),
        "refuted",
    ),
    "another broker has announced the next generation, which metadata does not name yet": (
        {"evidence": "inferred"},
        report(members=[member("m2", last_heartbeat_ms=None, generation=4)], generation=4, announced_by="broker-2"),
        "rejoined",
    ),
    "another broker had announced the generation in which it is accepted again": (
        {"evidence": "inferred"},
        report(members=[member("m2", last_heartbeat_ms=OPENED_MS + 1)], announced_by="broker-2"),
        "refuted",
    ),
    "a new coordinator, which loaded what was never written otherwise, has it still": (
        {"evidence": "inferred"},
        report(members=[member("m2", last_heartbeat_ms=OPENED_MS + 1)], broker="broker-2"),
        "rejoined",
    ),
    "the log still lists it, nobody has heard it": (
        {"evidence": "inferred"},
        report(members=[member("m2", last_heartbeat_ms=None)], at_ms=LONG_AFTER),
        None,
    ),
    "the view is of before it happened, a replica catches up": (
        {},
        report(members=[member("m2", joined_ms=0, generation=99)], at_ms=AT_MS - 1),
        None,
    ),
    "the same client on the same host": (
        {},
        report(members=[member("x", client_id="worker", client_host="10.0.0.8", joined_ms=AT_MS)]),
        "rejoined",
    ),
    "the same connection": ({}, report(members=[member("x", connection="k:1", joined_ms=AT_MS)]), "rejoined"),
    "an instance on the connection of a member that was none: only a proxy shares one": (
        {},
        report(members=[member("x", instance_id="i", connection="k:1", joined_ms=AT_MS)]),
        None,
    ),
    "the same client, but it was there before": (
        {},
        report(members=[member("x", client_id="worker", client_host="10.0.0.8", joined_ms=0)]),
        None,
    ),
    "the same instance": (
        {"instance_id": "i"},
        report(members=[member("x", instance_id="i", joined_ms=AT_MS)]),
        "rejoined",
    ),
    "another instance of that client": (
        {"instance_id": "i"},
        report(members=[member("x", instance_id="j", client_id="worker", client_host="10.0.0.8", joined_ms=AT_MS)]),
        None,
    ),
    "back, but the group is not stable yet": ({}, report(members=[M2_BACK], stable_ms=None), None),
    "a minute stable, all partitions owned": ({}, report(members=[member()], at_ms=LONG_AFTER), "recovered"),
    "a minute stable, one partition unowned": ({}, report(members=[member(partitions=(0,))], at_ms=LONG_AFTER), None),
    "a minute stable, nobody subscribes to its topic any more": (
        {},
        report(members=[member(partitions=(), topics=["u"])], at_ms=LONG_AFTER),
        "recovered",
    ),
    "a minute stable, its topic is known by id only": (
        {},
        report(members=[member(partitions=())], at_ms=LONG_AFTER, type_="consumer"),
        "recovered",
    ),
    "a minute stable, not all owners are known": (
        {},
        report(members=[member(partitions=(), partitions_left_out=1)], at_ms=LONG_AFTER),
        "recovered",
    ),
    "not a minute yet": ({}, report(members=[member()], at_ms=LONG_AFTER, stable_ms=AT_MS + 100), None),
    "the group is deleted": ({}, report(deleted=True), "group-deleted"),
    "a warning: heard again": (
        {"rule": "session-at-risk", "severity": "info"},
        report(members=[member("m2")]),
        "recovered",
    ),
    "a warning: nobody has heard it, the group rebalances": (
        {"rule": "session-at-risk", "severity": "info"},
        report(members=[member("m2", last_heartbeat_ms=0)], state="PreparingRebalance", stable_ms=None),
        "superseded",
    ),
    "a warning: its member is gone": ({"rule": "session-at-risk", "severity": "info"}, report(), "superseded"),
    "a warning: found to be worse": ({"rule": "session-at-risk", "severity": "info"}, report(finding()), "superseded"),
}


@pytest.mark.parametrize("name", ADOPTED)
def test_an_open_incident_that_is_not_found(name):
    changes, told, reason = ADOPTED[name]
    closings = [t for t in diff([opened(**changes)], told) if t.kind is Kind.CLOSED]
    assert [t.incident.reason for t in closings] == ([] if reason is None else [reason])


def test_how_long_a_group_must_be_well_is_what_is_configured_for_it():
    told = report(members=[member()], at_ms=AT_MS + 5_000)
    assert diff([opened()], told) == []
    [closed] = diff([opened()], told, resolve_after_ms=4_000)
    assert (closed.incident.reason, closed.at_ms) == ("recovered", AT_MS + 4_000)


# ------------------------------------------------------------------------------------------------ a broker's incident

STALLED = {"rule": "telemetry-stalled", "group": "", "subject": "broker-1", "member_id": None, "severity": "page"}


def brokers(*findings, holder, at_ms=AT_MS):
    return GroupReport(cluster="c", group="", at_ms=at_ms, findings=list(findings), holder=holder)


def test_a_broker_incident_ends_with_the_last_shard_that_sees_it():
    [first] = diff([], brokers(finding(**STALLED), holder="0"))
    [second] = diff([first.incident], brokers(finding(**STALLED), holder="7"))
    assert (first.kind, second.kind, second.incident.holders) == (Kind.OPENED, Kind.UPDATED, ["0", "7"])
    assert diff([second.incident], brokers(holder="3")) == []
    [third] = diff([second.incident], brokers(holder="0", at_ms=AT_MS + 5))
    [last] = diff([third.incident], brokers(holder="7", at_ms=AT_MS + 9))
    assert (third.kind, last.kind, last.incident.reason, last.at_ms) == (
        Kind.UPDATED,
        Kind.CLOSED,
        "telemetry-back",
        AT_MS + 9,
    )


def told_of_pause(shard, *members, total=None, reason=None):
    """What a shard reports; ``total`` None: it finds none any more."""
    detail = {"members": [["g", name] for name in members], "total": total}
    found = finding(rule="coordinator-paused", cause="coordinator-pause", group="", subject="broker-1", detail=detail)
    findings, holder = [] if total is None else [found], f"c/{shard}"
    return GroupReport(cluster="c", group="", at_ms=AT_MS, findings=findings, holder=holder, shard=shard, reason=reason)


def step(held, *args, **how):
    [done] = diff(held, told_of_pause(*args, **how))
    return [done.incident]


def test_the_page_about_a_paused_coordinator_counts_the_members_of_all_shards():
    [incident] = step([], 1, *(f"m{number}" for number in range(60)), total=300)
    assert incident.summary == (
        "broker-1 paused or restarted, and removed at least 300 members within a session timeout after that"
    )
    [incident] = step([incident], 2, "n0", "n1", total=2)
    assert (incident.detail["total"], len(incident.detail["members"])) == (302, 62)
    assert "at least 302 members" in incident.summary
    [incident] = step([incident], 2, "n1", total=1)  # the other one was heard again
    assert (incident.detail["total"], incident.detail["members"][:2]) == (301, [["g", "n1", 2], ["g", "m0", 1]])


# why a shard no longer finds its loss -> what the page still counts
@pytest.mark.parametrize(
    ("reason", "counted"), [("refuted", [["g", "m2", 2]]), (None, [["g", "m2", 2], ["g", "m1", 1]])]
)
def test_the_page_about_a_paused_coordinator_counts_nobody_whose_loss_is_refuted(reason, counted):
    held = step(step([], 1, "m1", total=1), 2, "m2", total=1)
    [incident] = step(held, 1, reason=reason)
    assert (incident.detail["members"], incident.detail["total"]) == (counted, len(counted))
    assert f"at least {len(counted)} member" in incident.summary
    assert diff([incident], told_of_pause(1, reason="refuted")) == []  # it says so again, with another page's


def test_a_page_that_an_earlier_version_stored_lists_each_member_once():
    [incident] = step([], 1, "m1", total=1)
    stored = replace(incident, detail={"members": [["g", "m1"]], "total": 1})
    [incident] = step([stored], 1, "m1", total=1)
    assert (incident.detail["members"], incident.detail["total"]) == ([["g", "m1", 1]], 1)


def named(shard, at_ms):
    return {"shard": shard, "at_ms": at_ms}


def test_outputs_of_shards_come_in_order_of_time_and_what_one_says_later_stays_later():
    looked_back = [named(1, 500), named(1, 300), named(0, 400), named(0, 500)]
    assert in_order(looked_back) == [named(0, 400), named(0, 500), named(1, 500), named(1, 300)]

    def reported(outputs):
        return [GroupReport(cluster="c", group="g", **output) for output in outputs]

    assert in_order(reported(looked_back)) == reported(in_order(looked_back))


def kinds_of(reports, resolve_after_ms=MINUTE_MS):
    transitions, still_open = fold({}, reports, lambda _: resolve_after_ms)
    return [step.kind for step in transitions], sum(map(len, still_open.values()))


def test_what_has_ended_does_not_begin_again_in_a_later_report():
    over = finding(closed_reason="rejoined", closed_ms=AT_MS + 500)
    assert kinds_of([report(finding()), report(over), report(finding())]) == ([Kind.OPENED, Kind.CLOSED], 0)


STUCK = {"rule": "rebalance-stuck", "severity": "page", "subject": "g"}


def folded(*reports, **arguments):
    return [(step.kind, step.at_ms) for step in fold({}, reports, lambda _: MINUTE_MS, **arguments)[0]]


def test_a_trouble_that_is_found_again_after_its_end_is_told_again():
    reports = report(finding(**STUCK)), report(at_ms=AT_MS + 2_000), report(finding(**STUCK), at_ms=AT_MS + 3_000)
    assert folded(*reports) == [(Kind.OPENED, AT_MS), (Kind.CLOSED, AT_MS + 2_000), (Kind.OPENED, AT_MS + 3_000)]
    assert folded(reports[2], ended_ms=dict.fromkeys(ids_in(reports), AT_MS + 2_000)) == [(Kind.OPENED, AT_MS + 3_000)]


def test_what_opens_again_has_the_instant_at_which_it_does_and_keeps_its_id():
    """Whoever looks for what began last finds it, and it does not claim the time in which it was closed."""
    reports = report(finding(**STUCK)), report(at_ms=AT_MS + 2_000), report(finding(**STUCK), at_ms=AT_MS + 3_000)
    again = report(finding(**STUCK, summary="still stuck"), at_ms=AT_MS + 4_000)
    steps = [step.incident for step in fold({}, [*reports, again], lambda _: MINUTE_MS)[0]]
    assert [incident.opened_ms for incident in steps] == [OPENED_MS, OPENED_MS, AT_MS + 3_000, AT_MS + 3_000]
    assert len({incident.incident_id for incident in steps}) == 1


def test_what_only_informs_is_told_once():
    told = report(finding(**STUCK | {"severity": "info"}), at_ms=AT_MS + 9_000)
    assert folded(told, ended_ms=dict.fromkeys(ids_in([told]), AT_MS)) == []
    worse = report(finding(**STUCK | {"severity": "warn"}), at_ms=AT_MS + 9_000)
    assert folded(worse, ended_ms=dict.fromkeys(ids_in([worse]), AT_MS)) == [(Kind.OPENED, AT_MS + 9_000)]


def test_a_report_from_before_an_incidents_end_opens_it_only_if_it_is_no_rereading():
    """A shard that has caught up may look back. What it says is true now, so the opening does not precede the end."""
    told = report(finding(**STUCK))
    ended_ms = dict.fromkeys(ids_in([told]), AT_MS + 2_000)
    assert folded(told, ended_ms=ended_ms) == []
    assert folded(told, ended_ms=ended_ms, reads_anew=False) == [(Kind.OPENED, AT_MS + 2_000)]


@pytest.mark.parametrize("rule", sorted(LASTING_RULES | UNEXPLAINED_RULES))
def test_a_departure_whose_incident_has_ended_is_never_told_again(rule):
    told = report(finding(rule=rule), at_ms=AT_MS + 9_000)
    assert folded(told, ended_ms=dict.fromkeys(ids_in([told]), AT_MS), reads_anew=False) == []


def test_a_group_that_is_switched_off_opens_nothing_and_ends_what_was_open():
    [opened], held = fold({}, [report(finding())], lambda _: MINUTE_MS)
    [closed], left = fold(held, [report(finding(subject="m3"))], lambda _: None)
    assert (opened.kind, closed.kind, closed.incident.reason) == (Kind.OPENED, Kind.CLOSED, "superseded")
    assert list(left.values()) == [{}]
