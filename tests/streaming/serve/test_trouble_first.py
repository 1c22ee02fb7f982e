"""Trouble comes first everywhere: open `page`, open `warn`, then the least headroom."""

import json
import re

import pytest

from streaming.serve import metrics, page
from tests.streaming.serve.test_commands import command  # noqa: F401
from tests.support.outputs import CLUSTER, START_MS, ended, finding, member, report, view

PAGED = ("a-small-one", "m-in-the-middle", "zz-last")
WARNED = ("b-warned", "y-warned")
TIGHT = ("c-tight", "x-tight")  # in this order: 0.1 and 0.2 of a session timeout are left
WORST_FIRST = [*sorted(PAGED), *sorted(WARNED), *TIGHT]
QUIET = 260


def one(group, headroom=0.9, members=1, **changes):
    made = [member(f"m-{number}", heartbeat_headroom=headroom) for number in range(members)]
    return view(group, **changes) | {"members": made}


@pytest.fixture
def fleet(apply):
    """267 groups: those in trouble are small and Stable, the others large, and two of them rebalance."""
    apply(
        *(report(f"g-{number:03}", view=one(f"g-{number:03}", members=5)) for number in range(QUIET - 3)),
        *(report(f"r-{number}", view=one(f"r-{number}", state="PreparingRebalance")) for number in range(2)),
        report("was-paged", finding("was-paged", severity="page"), view=one("was-paged")),
        *(report(name, finding(name, severity="page"), view=one(name, headroom=0.5)) for name in PAGED),
        *(report(name, finding(name), view=one(name, headroom=0.6)) for name in WARNED),
        *(report(name, view=one(name, headroom=0.1 * (place + 1))) for place, name in enumerate(TIGHT)),
    )
    apply(report("was-paged", ended(finding("was-paged", severity="page"), START_MS + 1), at_ms=START_MS + 1))


pytestmark = pytest.mark.usefixtures("fleet")


def in_trouble(names):
    """The order, without regard to that of groups in equal trouble, which their keys (hashes) decide."""
    return [*sorted(names[:3]), *sorted(names[3:5]), *names[5:7]]


def test_the_api_lists_the_worst_first_and_tells_why(client):
    groups = client.json("/api/v1/groups")
    assert len(groups) == QUIET + 7
    assert in_trouble([group["group"] for group in groups]) == WORST_FIRST
    assert [group["open_incidents"] for group in groups[:6]] == [{"page": 1}] * 3 + [{"warn": 1}] * 2 + [{}]


def test_pages_of_the_list_do_not_overlap(client):
    whole = [group["group"] for group in client.json("/api/v1/groups")]
    pages = [client.json(f"/api/v1/groups?limit=100&offset={offset}") for offset in (0, 100, 200)]
    assert [group["group"] for some in pages for group in some] == whole


def test_a_reader_of_all_pages_may_ask_for_an_order_that_stays(client):
    names = [group["group"] for group in client.json("/api/v1/groups?sort=name")]
    assert names == sorted(names)
    client.json("/api/v1/groups?sort=trouble")
    assert "sort is trouble or name" in client.json("/api/v1/groups?sort=size", 400)["error"]


def test_the_page_shows_the_worst_first(client, monkeypatch):
    monkeypatch.setattr(page, "GROUPS_SHOWN", 7)
    listed = client.get("/").text.partition('id="groups"')[2]
    assert in_trouble(re.findall(r'href="/groups/([^?"]+)', listed)) == WORST_FIRST
    assert (listed.count("1 page<"), listed.count("1 warn<")) == (3, 2)


def test_a_group_s_page_begins_with_its_open_incidents(apply, client, monkeypatch):
    """Closed ones have what room is left, and stand below, even if they are newer."""
    monkeypatch.setattr(page, "INCIDENTS_SHOWN", 3)
    apply(report("zz-last", finding("zz-last", "m-warned"), at_ms=START_MS + 1))
    for number in range(4):
        opened_ms = START_MS + 10_000 + number
        passing = finding("zz-last", f"gone-{number}", opened_ms=opened_ms)
        apply(
            report("zz-last", passing, at_ms=opened_ms),
            report("zz-last", ended(passing, opened_ms + 1), at_ms=opened_ms + 1),
        )
    sections = client.get("/groups/zz-last").text.split("<h2>")[1:]
    assert sections[0].startswith("Open incidents (2)")
    assert re.findall(r'<td class="(\w+)">', sections[0]) == ["page", "warn"]
    [closed] = [section for section in sections if section.startswith("Closed incidents")]
    assert closed.startswith("Closed incidents (showing 1 of 4)")
    assert re.findall(r'<td class="(\w+)">', closed) == ["warn"]


def test_bounded_metrics_hold_the_groups_in_trouble(client, monkeypatch):
    monkeypatch.setattr(metrics, "GROUP_SERIES", 5)
    text = client.get("/metrics").text
    assert set(re.findall(rf'{metrics.GROUP_MEMBERS}{{cluster="{CLUSTER}",group="([^"]+)"}}', text)) == {
        *PAGED, *WARNED,
    }  # fmt: skip


def test_metrics_of_rebalances_hold_the_groups_in_trouble(apply, client, monkeypatch):
    monkeypatch.setattr(metrics, "REBALANCING_GROUPS", 1)
    phase = {"phase": "join", "since_ms": START_MS, "waiting_for": [], "waiting_for_total": 0}
    for name, found in (("huge", []), ("stuck", [finding("stuck", severity="page")])):
        members = 50 if name == "huge" else 1
        apply(report(name, *found, view=one(name, members=members, state="PreparingRebalance", rebalance=phase)))
    assert f'{metrics.PHASE_STARTED}{{cluster="{CLUSTER}",group="stuck",phase="join"}}' in client.get("/metrics").text


def test_open_incidents_come_by_severity_where_asked(client):
    severities = [one["severity"] for one in client.json("/api/v1/incidents?state=open&sort=severity")]
    assert severities == ["page"] * 3 + ["warn"] * 2
    assert "sort=severity is for state=open" in client.json("/api/v1/incidents?sort=severity", 400)["error"]


def test_watch_and_describe_show_the_worst_first(command):  # noqa: F811
    (look,) = command("watch", "--times", "1", "--json").splitlines()
    assert in_trouble([group["group"] for group in json.loads(look)["groups"]]) == WORST_FIRST
    assert [one["severity"] for one in json.loads(look)["incidents"]] == ["page"] * 3 + ["warn"] * 2
    listed = [line for line in command("describe", "--limit", "7").splitlines() if CLUSTER in line]
    assert in_trouble([line.split()[3] for line in listed]) == WORST_FIRST
    assert "1 page" in listed[0]
