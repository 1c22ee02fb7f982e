"""The page, as geometry and as a real browser shows it."""

import html
import itertools
import json
import re
from urllib.parse import quote

import pytest

from streaming.serve.timeline import LABEL, MEMBER_ROWS, WIDTH, heartbeats, timeline, waited_for
from tests.streaming.serve import chromium
from tests.streaming.serve.conftest import STALLED_MS, sign_of_life
from tests.support.outputs import (
    START_MS,
    finding,
    member,
    partition,
    partitions,
    progress,
    report,
    sums_of,
    view,
)
from tests.support.waiting import PATIENCE_S

EVIL = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">\u202e'"

GENERATION = {
    "generation": 4, "at_ms": START_MS - 30_000, "cause": "left", "members_total": 2, "partitions_moved": 0,
    "joined": [], "left": [], "returned": [], "began_ms": START_MS - 45_000, "took_ms": 15_000, "joining_ms": 14_900,
    "waited_for": ["m-3", "m-4", "m-5"], "waited_for_total": 5,
}  # fmt: skip


def seen(**changes):
    return view(**changes) | {"at_ms": START_MS}


class TestTimeline:
    def test_an_instant_lies_where_it_belongs(self):
        row = {"generation": 4, "at_ms": START_MS - 30_000, "cause": "left"}
        (mark,) = timeline(seen(), [row], [], 60_000).generations
        assert mark.x == LABEL + (WIDTH - LABEL) / 2

    def test_what_is_older_than_the_window_is_left_out_and_what_began_before_is_cut(self):
        old = {"generation": 3, "at_ms": START_MS - 90_000, "cause": "left"}
        over = finding() | {"closed_ms": START_MS - 61_000, "opened_ms": START_MS - 80_000}
        still = finding() | {"closed_ms": None, "opened_ms": START_MS - 80_000}
        drawn = timeline(seen(), [old], [over, still], 60_000)
        assert drawn.generations == []
        assert [(bar.x, bar.width) for bar in drawn.bars] == [(LABEL, WIDTH - LABEL)]

    def test_a_past_rebalance_is_a_bar_from_its_beginning_to_the_generation_it_made(self):
        drawn = timeline(seen(), [GENERATION, GENERATION | {"took_ms": None, "began_ms": None}], [], 60_000)
        assert [(bar.kind, bar.x, bar.width) for bar in drawn.bars] == [
            ("rebalance", LABEL + (WIDTH - LABEL) / 4, (WIDTH - LABEL) / 4)
        ]
        assert drawn.bars[0].title.endswith("rebalanced in 15 s, waited for m-3, m-4, m-5 and 2 more")

    def test_a_rebalance_that_goes_on_is_a_bar(self):
        drawn = timeline(seen(state="PreparingRebalance", state_since_ms=START_MS - 15_000), [], [], 60_000)
        assert [(bar.kind, bar.width) for bar in drawn.bars] == [("rebalance", (WIDTH - LABEL) / 4)]

    @pytest.mark.parametrize("at_ms", [-(2**62), 0, 2**62])
    def test_an_absurd_instant_stays_within_the_picture(self, at_ms):
        group = seen(members=1, state="PreparingRebalance", state_since_ms=at_ms)
        group["members"] = [member("m", last_heartbeat_ms=at_ms)]
        for bar in timeline(group, [], [finding(opened_ms=at_ms) | {"closed_ms": None}], 60_000).bars:
            assert LABEL <= bar.x <= bar.x + bar.width <= WIDTH
        for bar in heartbeats(group).bars:
            assert LABEL <= bar.x <= bar.x + bar.width <= WIDTH


class TestHeartbeats:
    def test_the_member_with_the_least_time_left_comes_first(self):
        members = [member("a", heartbeat_headroom=0.9), member("b", heartbeat_headroom=0.1, liveness="violated")]
        drawn = heartbeats(seen() | {"members": members})
        assert [(bar.label, bar.kind) for bar in drawn.bars] == [("b", "violated"), ("a", "alive")]

    def test_a_bar_ends_at_the_deadline(self):
        drawn = heartbeats(seen() | {"members": [member("a", last_heartbeat_ms=START_MS, session_timeout_ms=10_000)]})
        assert (drawn.now_x, drawn.bars[0].x + drawn.bars[0].width, drawn.to_ms) == (LABEL, WIDTH, START_MS + 10_000)

    def test_a_huge_group_is_a_bounded_picture(self):
        drawn = heartbeats(seen() | {"members": [member(f"m{number}") for number in range(5_000)]})
        assert (len(drawn.bars), drawn.hidden) == (MEMBER_ROWS, 5_000 - MEMBER_ROWS)

    def test_without_members_there_is_an_empty_picture(self):
        assert heartbeats(seen(members=0)).bars == []


def test_whom_a_rebalance_waits_for_is_what_its_incident_says():
    assert waited_for([finding(), finding(detail={"waiting_for": ["m-3"]})]) == ["m-3"]


def test_the_page_shows_what_happened_without_any_script(apply, client):
    stuck = finding(rule="rebalance-stuck", detail={"waiting_for": ["m-3"]})
    apply(report("orders", stuck, view=view()))
    apply(report("orders", stuck, view=view(generation=4, stable_since_ms=START_MS)))
    text = client.get("/groups/orders").text
    assert "The rebalance waits for <bdi>m-3</bdi>" in text
    assert text.count("<svg") == 2
    assert "generation 4: 1 member" in text


def test_a_page_says_that_its_cluster_makes_no_progress(apply, client, store):
    """The page of a group, to which alerts link, was "live" with the figures of days ago."""
    for cluster in ("dev", "prod"):
        apply(report(cluster, view=view(cluster, cluster=cluster)), cluster=cluster)
    sign_of_life(store, 2 * STALLED_MS)
    said = "Not current: <bdi>prod makes no progress</bdi>"
    assert said in client.get("/").text
    assert said in client.get("/groups/prod").text
    assert "Not current" not in client.get("/groups/dev").text


def test_a_cause_that_nobody_knows_is_not_written_below_what_happened(apply, client):
    apply(report("orders", finding(rule="member-idle", cause="unknown", client_host=None), view=view()))
    apply(report("bills", finding("bills"), view=view("bills")))
    assert '<span class="muted"></span>' in client.get("/groups/orders").text
    assert "session-timeout" in client.get("/groups/bills").text


def test_a_stall_says_since_when_it_is_owned_and_after_which_rebalance(apply, client):
    detail = {"owned_since_ms": START_MS, "stable_since_ms": START_MS, "rebalance_reason": "<topic> changed"}
    apply(report("orders", finding(rule="partition-stalled", detail=detail), view=view()))
    said = "owned since 2026-09-21 14:13:20.000 UTC, after a rebalance: &lt;topic&gt; changed"
    assert said in client.get("/groups/orders").text
    assert said in client.get("/").text


@pytest.mark.parametrize(
    ("query", "status"), [("minutes=5", 200), ("minutes=0", 400), ("minutes=x", 400), ("minutes=99999999", 400)]
)
def test_the_window_of_the_timeline_can_be_asked_for(apply, client, query, status):
    apply(report("orders", view=view()))
    client.get(f"/groups/orders?{query}", status)


def test_the_page_of_an_empty_group_says_so_and_leaves_nothing_blank(apply, client):
    nobody = view("idle", members=0, state="Empty", leader=None, protocol=None, protocol_type=None)
    apply(report("idle", view=nobody))
    text = client.get("/groups/idle?minutes=1").text
    assert "generation 3, partition 7" in " ".join(text.split())
    assert "leader" not in text
    assert "The last minute<" in text
    assert text.count("<svg") == 1
    assert "No member has sent a heartbeat" in text
    assert "The last 2 minutes<" in client.get("/groups/idle?minutes=2").text


def test_labels_of_generations_do_not_overlap_and_stay_within_the_picture():
    rows = [{"generation": 1_000 + n, "at_ms": START_MS - n * 400, "cause": "left"} for n in range(100)]
    marks = timeline(seen(), rows, [], 60_000).generations
    spans = sorted((m.x - 7 * len(m.text), m.x) if m.ends else (m.x, m.x + 7 * len(m.text)) for m in marks if m.text)
    assert len(marks) == 100
    assert 5 < len(spans) < 50
    assert spans[0][0] >= LABEL
    assert spans[-1][1] <= WIDTH
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    newest = max(marks, key=lambda mark: mark.x)
    assert newest.text == "1000"


def test_now_is_never_cut_off_at_the_edge():
    past = seen() | {"members": [member("a", last_heartbeat_ms=START_MS - 50_000, session_timeout_ms=10_000)]}
    ahead = seen() | {"members": [member("a", last_heartbeat_ms=START_MS, session_timeout_ms=10_000)]}
    assert (heartbeats(past).now_x, heartbeats(past).now_ends) == (WIDTH, True)
    assert (heartbeats(ahead).now_x, heartbeats(ahead).now_ends) == (LABEL, False)


def ids_of(text):
    return re.findall(r"<td><bdi>(m-\d+)</bdi>", text)


def huge(members=10_000):
    """A group of many; three of its members are in trouble, each in another way."""
    made = [member(f"m-{number}") for number in range(members)]
    made[7_000] |= {"liveness": "violated"}
    made[8_000] |= {"heartbeat_headroom": 0.05}
    made[9_000] |= {"poll_headroom": 0.04}
    waiting = {"phase": "join", "since_ms": START_MS, "waiting_for": ["m-5000"], "waiting_for_total": 1}
    return view("huge", rebalance=waiting) | {"members": made}


def test_a_page_of_ten_thousand_members_is_short_and_shows_those_in_trouble_first(apply, client):
    apply(report("huge", view=huge()))
    text = client.get("/groups/huge").text
    assert ids_of(text)[:5] == ["m-7000", "m-5000", "m-9000", "m-8000", "m-0"]
    assert len(ids_of(text)) == 100
    assert len(text) < 150_000
    assert "Members (10000)" in text
    assert "1 to 100, those in trouble first" in text


def test_every_member_is_on_one_page(apply, client):
    apply(report("huge", view=view("huge", members=450)))
    link, seen = "/groups/huge?minutes=5&cluster=prod", []
    while link:
        text = client.get(link).text
        seen += ids_of(text)
        found = re.search(r'<a href="(\?[^"]*)">Next</a>', text)
        link = f"/groups/huge{html.unescape(found[1])}" if found else None
        assert link is None or "minutes=5" in link
    assert sorted(seen) == sorted(f"m-{number}" for number in range(450))
    assert "Next</a>" not in text
    assert ids_of(client.get("/groups/huge?page=1000000").text) == []
    client.get("/groups/huge?page=0", 400)


def test_a_page_that_did_not_change_is_not_sent_again(apply, client):
    apply(report("orders", view=view()))
    for path in ("/groups/orders", "/"):
        version = client.get(path).headers["ETag"]
        asked = client.session.get(client.base + path, headers={"If-None-Match": version}, timeout=PATIENCE_S)
        assert (asked.status_code, asked.content) == (304, b"")
        assert asked.headers["Content-Security-Policy"]
    apply(report("orders", view=view(generation=4)))
    again = client.session.get(f"{client.base}/groups/orders", headers={"If-None-Match": version}, timeout=PATIENCE_S)
    assert again.status_code == 200


@pytest.mark.parametrize("name", [".", ".."])
def test_a_group_whose_id_is_a_dot_has_a_page(apply, client, name):
    apply(report(name, view=view(name)))
    (path,) = re.findall(rf'href="(/group[^"]*)">{re.escape(name)}<', client.get("/").text)
    assert f"<h1>{name}" in client.get(html.unescape(path)).text.replace("<bdi>", "")


def test_the_longest_names_make_no_long_page_and_their_links_lead_somewhere(apply, client):
    for number in range(10):
        name = f"{number:02}".ljust(32_000, "é")
        long = [member(f"{number}{name}", client_id=name, instance_id=name, client_host=name) for number in range(5)]
        topics = [{"topic": f"{number}".ljust(249, "t"), "partitions": list(range(100))} for number in range(50)]
        long[0] |= {"assignment": topics}
        shown = view(name, leader=name, protocol=name) | {"members": long}
        apply(report(name, finding(name, name, summary=name, client_host=name), view=shown))
    overview = client.get("/").text
    assert len(overview) < 60_000
    (first, *_) = re.findall(r'href="(/group/[0-9a-f]{64})"', overview)
    group = client.get(first).text
    assert len(group) < 80_000
    assert "0-99<br>" in group
    assert "and 40 more topics" in group
    client.get("/group/nonsense", 404)


@pytest.fixture
def browser():
    if reason := chromium.missing():
        pytest.skip(reason)
    return chromium


class TestBrowser:
    def test_it_keeps_itself_current(self, apply, client, browser, monkeypatch):
        from streaming.serve import page

        apply(report("orders", view=view()))
        original, answers = page._page, []

        def changes_after_the_first(*arguments, **values):
            answers.append(original(*arguments, **values))
            if len(answers) == 1:
                apply(report("orders", view=view(state="PreparingRebalance", generation=77)))
            return answers[-1]

        monkeypatch.setattr(page, "_page", changes_after_the_first)
        shown = browser.dom(f"{client.base}/groups/orders", runs_ms=5_000)
        assert len(answers) >= 2
        assert "generation 77" in shown
        assert re.search(r'id="live">live<', shown)

    def test_hostile_names_do_nothing_in_it(self, apply, client, browser):
        hostile = view(EVIL, leader=EVIL, protocol=EVIL)
        hostile["members"][0] |= dict.fromkeys(("member_id", "instance_id", "client_id", "client_host"), EVIL)
        apply(report(EVIL, finding(EVIL, EVIL, summary=EVIL), view=hostile))
        for path in ("/", f"/groups/{quote(EVIL, safe='')}"):
            shown = browser.dom(client.base + path, runs_ms=3_000)
            assert "<title>pwned" not in shown
            assert "<img" not in shown
            assert "&lt;img" in shown

    def test_a_picture_of_it_can_be_taken(self, apply, client, browser, tmp_path):
        apply(report("orders", finding(), view=view(members=3)))
        picture = browser.screenshot(f"{client.base}/groups/orders", tmp_path / "page.png")
        assert picture.startswith(b"\x89PNG")
        assert len(picture) > 20_000


SELECT_FIRST = """(text => {
    const nodes = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (nodes.nextNode()) {
        const at = nodes.currentNode.data.indexOf(text);
        if (at >= 0) return getSelection().setBaseAndExtent(nodes.currentNode, at, nodes.currentNode, at + text.length);
    }
})"""


@pytest.fixture(scope="module")
def tab():
    if reason := chromium.missing():
        pytest.skip(reason)
    with chromium.tab() as opened:
        yield opened


class TestOpenPage:
    """A page that stays open while things happen."""

    def test_a_refresh_keeps_selection_and_focus(self, apply, client, tab):
        apply(report("orders", finding(), view=view(members=3)))
        tab.open(f"{client.base}/groups/orders")
        tab.run(f"{SELECT_FIRST}('m-2')")
        tab.run("document.querySelector('main a[href^=\"/rules/\"]').focus()")
        other = finding("orders", "m-1", rule="poll-exceeded", severity="page", opened_ms=START_MS + 5_000)
        apply(report("orders", finding(), other, view=view(members=4, generation=77)))
        tab.wait_until("document.body.textContent.includes('generation 77')")
        assert "poll-exceeded" in tab.run("document.querySelector('main').textContent")
        assert tab.run("getSelection().toString()") == "m-2"
        assert tab.run("document.activeElement.getAttribute('href')") == "/rules/session-expired"

    def test_a_refresh_keeps_selection_and_focus_where_rows_change_places(self, apply, client, tab):
        groups = [f"g-{number}" for number in range(5)]
        apply(*(report(group, view=view(group)) for group in groups))
        tab.open(client.base)
        tab.run("document.querySelector('main a[href^=\"/groups/g-3\"]').focus()")
        tab.run(f"{SELECT_FIRST}('g-1')")
        apply(report("g-4", finding("g-4", severity="page"), view=view("g-4")), report("g-0", deleted=True))
        apply(report("g-3", finding("g-3", opened_ms=START_MS + 1), view=view("g-3")))
        tab.wait_until("document.body.textContent.includes('Groups (4 of 4')")
        shown = tab.run("[...document.querySelectorAll('#groups ~ * a[href^=\"/groups/\"]')].map(a => a.textContent)")
        assert shown == ["g-4", "g-3", "g-1", "g-2"]
        assert tab.run("getSelection().toString()") == "g-1"
        assert tab.run("document.activeElement.textContent") == "g-3"

    def test_a_refresh_keeps_selection_and_focus_in_the_table_of_lag(self, apply, client, tab):
        rows = [partition(number, topic=f"t-{number}", lag=100 - number) for number in range(4)]
        apply(report("orders", finding(), view=view()), partitions("orders", *rows))
        tab.open(f"{client.base}/groups/orders")
        tab.run("document.querySelector('main a[href^=\"/rules/\"]').focus()")
        tab.run(f"{SELECT_FIRST}('t-1')")
        changed = [partition(3, topic="t-3", lag=7_777_777, status="stop"), partition(2, topic="t-2", lag=500), rows[1]]
        apply(report("orders", view=view(generation=4)), partitions("orders", *changed, at_ms=START_MS + 10_000))
        tab.wait_until("document.body.textContent.includes('7,777,777')")
        shown = tab.run("[...document.querySelectorAll('#lag + p ~ table')][0].textContent.match(/t-\\d/g)")
        assert shown == ["t-3", "t-2", "t-1"]
        assert tab.run("getSelection().toString()") == "t-1"
        assert tab.run("document.activeElement.getAttribute('href')") == "/rules/session-expired"

    def test_a_refresh_ends_with_the_page_that_is_served(self, apply, client, tab):
        """Whatever was there before: rows come, go and change places."""
        apply(*(report(f"g-{number}", view=view(f"g-{number}")) for number in range(6)))
        tab.open(client.base)
        bad = [f"g-{number}" for number in (4, 2)]
        apply(report("g-1", deleted=True), *(report(name, finding(name), view=view(name)) for name in bad))
        apply(report("added", finding("added", severity="page"), view=view("added", members=7)))
        tab.wait_until("document.querySelector('main').textContent.includes('added')")
        served = client.get("/").text
        same = tab.run(
            f"new DOMParser().parseFromString({json.dumps(served)}, 'text/html').querySelector('main').innerHTML"
            " === document.querySelector('main').innerHTML"
        )
        assert same

    @pytest.mark.parametrize("path", ["/", "/groups/orders", "/groups/idle", "/rules", "/rules/session-expired"])
    def test_on_a_telephone_nothing_is_wider_than_the_screen_and_charts_can_be_read(self, apply, client, tab, path):
        long = "a-consumer-with-a-name-as-people-give-them-" * 3
        held = [{"topic": f"{long}{number}", "partitions": list(range(30))} for number in range(3)]
        members = [member(f"{long}{number}", client_id=long, assignment=held) for number in range(3)]
        shown = view(members=3, leader=long, protocol=long) | {"members": members}
        apply(report("orders", finding("orders", f"{long}0", summary=long), view=shown))
        apply(report("orders", finding("orders", f"{long}0", summary=long), view=shown | {"generation": 4}))
        apply(report("idle", view=view("idle", members=0, state="Empty")))
        owner = [f"{long}0", None, long, long, 3]
        rows = [partition(n, topic=long, metadata=long, lag=2**40, owner=owner, note="stuck") for n in range(3)]
        apply(partitions("orders", *rows), partitions("idle"))
        tab.open(client.base + path, width=390, height=844)
        assert tab.run("document.documentElement.scrollWidth") == 390
        heights = tab.run("[...document.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height)")
        assert path != "/groups/orders" or len(heights) > 5
        assert min(heights, default=99) >= 10


def test_what_is_read_and_which_sources_show_a_groups_members_is_told_in_a_line(apply, client):
    apply(report(view=view(members=2, members_total=2, sources={"records": 2, "request-log": 1})), progress())
    overview, group = client.get("/").text, client.get("/groups/orders").text
    assert "records and the request log of 1 broker (tier 2), at most 0.1 s late; 0 of 2 members" in overview
    assert "Members by source, of 2: records 2, request-log 1." in group


def test_of_the_coordinators_log_alone_the_line_says_that_its_loss_is_not_seen(apply, client):
    apply(report(view=view(members=2)), progress(brokers={}, counts={"CoordinatorLine": 1}))
    said = "records and the coordinators' INFO lines (tier 1), whose loss cannot be told from silence; 0 of 2 members"
    assert said in html.unescape(client.get("/").text)


def test_without_telemetry_the_line_says_so(apply, client):
    apply(report(view=view(members=2)))
    assert "records only (tier 0); 0 of 2 members of unknown liveness" in client.get("/").text


def test_where_not_all_partitions_are_shown_the_worst_topics_are(apply, client):
    sums = [sums_of(f"t-{number}", lag=number) for number in range(30)] + [sums_of(EVIL, status="warn", unknown=3)]
    apply(report("large", view=view("large")), partitions("large", partition(), left_out=6_000, sums=sums))
    page = client.get("/groups/large").text
    assert "Topics (the worst 20 of 31)" in page
    assert (page.index("&lt;script&gt;") < page.index("t-29"), "t-10" in page, "t-5<" in page) == (True, False, False)
    assert "not known of 3" in page
    apply(report("small", view=view("small")), partitions("small", partition(), partition(topic="other")))
    assert "Topics (" not in client.get("/groups/small").text
