"""The HTTP side as programs see it."""

import asyncio
import html
import re
import tracemalloc
from urllib.parse import quote

import pytest

from streaming.serve import api
from streaming.serve.app import SECURITY_HEADERS
from streaming.store import reader
from streaming.store.store import wall_ms
from tests.streaming.serve.conftest import STALLED_MS, sign_of_life
from tests.support.outputs import CLUSTER, START_MS, blind, ended, finding, progress, report, view
from tests.support.waiting import PATIENCE_S

CONTRACT_GROUP = {
    "kind", "cluster", "group", "type", "state", "state_evidence", "generation", "protocol_type", "protocol",
    "leader", "partition", "members",
}  # fmt: skip
CONTRACT_INCIDENT = {
    "kind", "transition", "incident_id", "rule", "severity", "cluster", "group", "member_id", "instance_id",
    "client_id", "client_host", "generation", "broker", "evidence", "cause", "deadline_ms", "at_ms", "summary",
}  # fmt: skip


def test_groups_are_the_contracts_objects_with_the_configured_labels(apply, client):
    apply(report(view=view(members=2)), report("other", view=view("other")))
    orders, other = client.json("/api/v1/groups")
    assert orders.keys() >= CONTRACT_GROUP
    assert {name: orders[name] for name in CONTRACT_GROUP} == {name: view(members=2)[name] for name in CONTRACT_GROUP}
    assert orders["labels"] == {"team": "shop"}
    assert (other["group"], other["labels"]) == ("other", {})


def test_one_group_comes_with_its_open_incidents_and_newest_generations(apply, client):
    apply(report("orders", finding(), view=view()))
    apply(report("orders", finding(), view=view(generation=4, members=2, stable_since_ms=START_MS + 1)))
    found = client.json("/api/v1/groups/orders")
    assert [incident["member_id"] for incident in found["incidents"]] == ["m-1"]
    assert [row["generation"] for row in found["generations"]] == [4, 3]


def test_incidents_are_the_contracts_objects_with_the_newest_transition(apply, client):
    apply(report("orders", finding()))
    (opened,) = client.json("/api/v1/incidents?state=open")
    assert opened.keys() >= CONTRACT_INCIDENT
    assert (opened["kind"], opened["transition"], opened["labels"]) == ("incident", "opened", {"team": "shop"})
    apply(report("orders", ended(finding(), START_MS + 9_000)))
    assert client.json("/api/v1/incidents?state=open") == []
    (closed,) = client.json("/api/v1/incidents?state=closed")
    assert (closed["transition"], closed["reason"], closed["at_ms"]) == ("closed", "rejoined", START_MS + 9_000)
    assert client.json("/api/v1/incidents") == [closed]
    assert client.json("/api/v1/incidents?state=all&rule=poll-exceeded") == []


NAMES = (
    "a/b",
    "/",
    "//x//",
    "sp ace",
    "grüße",
    "日本",
    "a?b#c",
    "100%",
    "..",
    "<script>",
    "a\x00b",
    "+",
    "a\n",
    "a\n\nb",
    "g" * 5_000,
)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_any_group_id_can_be_asked_for(apply, client, name):
    apply(report(name, finding(name), view=view(name)))
    path = quote(name, safe="").replace("..", "%2E%2E")
    assert client.json(f"/api/v1/groups/{path}")["group"] == name
    assert client.json(f"/api/v1/incidents?group={quote(name, safe='')}")[0]["group"] == name
    assert client.get(f"/groups/{path}").text.count("<script>") == 1  # our own
    assert len(linked_groups(client)) == 2


def linked_groups(client):
    """The pages of groups that the overview links to: of its incidents, and of its groups."""
    links = re.findall(r'href="(/groups?/[^"]+)"', client.get("/").text)
    return [client.get(html.unescape(link)).text for link in links]


def test_what_utf8_cannot_hold_does_not_break_the_list(apply, client):
    apply(report("\ud800", finding("\ud800"), view=view("\ud800")))
    assert client.json("/api/v1/groups")[0]["group"] == "\ud800"
    assert client.get("/").text.count("?</a>") >= 1
    assert len(linked_groups(client)) == 2
    assert 'group="?"' in client.get("/metrics").text


def test_a_group_of_several_clusters_must_be_named_with_its_cluster(apply, client):
    apply(report(view=view(state="Stable")))
    apply(report(view=view(state="Empty", cluster="dev")), cluster="dev")
    assert client.json("/api/v1/groups/orders", 400) == {
        "error": "several clusters have this group; add ?cluster=",
        "clusters": ["dev", CLUSTER],
    }
    assert client.json("/api/v1/groups/orders?cluster=dev")["state"] == "Empty"
    assert len(client.json("/api/v1/groups")) == 2
    assert [group["cluster"] for group in client.json("/api/v1/groups?cluster=dev")] == ["dev"]
    assert "in <bdi>dev</bdi>" in client.get("/groups/orders", 400).text


@pytest.mark.parametrize("path", ["/api/v1/groups/nobody", "/api/v1/groups/orders?cluster=nowhere", "/api/v2", "/x"])
def test_what_is_not_there_is_a_404_in_json(apply, client, path):
    apply(report(view=view()))
    assert "error" in client.json(path, 404)


WRONG_PARAMETERS = ["limit=0", "limit=10001", "limit=x", "limit=-1", "limit=1e3", "limit=²", "state=odd",
                    "rule=session-expird", f"offset={10**30}", f"offset={'0' * 19}1{'0' * 5_000}"]  # fmt: skip


@pytest.mark.parametrize("query", WRONG_PARAMETERS, ids=range(len(WRONG_PARAMETERS)))
def test_a_wrong_parameter_is_a_400_that_says_what_is_right(client, query):
    assert "is " in client.json(f"/api/v1/incidents?{query}", 400)["error"]


@pytest.mark.parametrize("path", ["groups", "incidents", "incidents?state=open", "coverage", "groups/orders"])
def test_a_cluster_that_nobody_knows_is_a_404_and_not_an_empty_list(apply, client, path):
    """On-call reads an empty list as: all is well."""
    apply(report("orders", finding(), view=view()))
    question = f"/api/v1/{path}{'&' if '?' in path else '?'}cluster="
    assert client.json(f"{question}prd", 404) == {"error": "no such cluster; known: prod"}
    client.get(f"{question}prod")


def test_a_state_that_kafka_does_not_have_is_a_400(client):
    assert client.json("/api/v1/groups?state=stable", 400)["error"].startswith("state is Empty, ")
    assert client.json("/api/v1/groups?state=Stable") == []


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/api/v1/incidents", "state, cluster, group, rule, severity, sort, told, limit, offset"),
        ("/api/v1/groups", "cluster, state, sort, limit, offset"),
        ("/api/v1/groups/orders", "cluster"),
        ("/api/v1/quarantine", "limit, offset"),
        ("/api/v1/openapi.json", "none"),
    ],
)
def test_an_unknown_parameter_is_a_400_that_names_it_and_the_known_ones(apply, client, path, known):
    """A misspelt filter was ignored, and the answer to `?sate=open` was every incident there ever was."""
    apply(report("orders", finding(), view=view()))
    assert client.json(f"{path}?sate=open&Limit=2", 400) == {
        "error": f"unknown parameter: Limit, sate; known here: {known}"
    }
    assert len(client.json(f"{path}?{'x' * 10_000}=1", 400)["error"]) < 400


def test_only_reading_is_possible(client):
    for path in ("/api/v1/groups", "/api/v1/incidents", "/metrics"):
        assert client.session.post(client.base + path, timeout=PATIENCE_S).status_code == 405
        assert client.session.delete(client.base + path, timeout=PATIENCE_S).status_code == 405


def test_a_long_list_comes_in_pages(apply, client):
    apply(*(report(f"g{number}", view=view(f"g{number}")) for number in range(5)))
    first = client.get("/api/v1/groups?limit=2")
    assert first.headers["X-Total-Count"] == "5"
    seen = [group["group"] for group in first.json()]
    while link := first.links.get("next"):
        first = client.get(link["url"])
        seen += [group["group"] for group in first.json()]
    assert seen == ["g0", "g1", "g2", "g3", "g4"]


def test_pages_go_on_where_elements_are_no_longer_counted(apply, client, monkeypatch):
    for module in (api, reader):
        monkeypatch.setattr(module, "COUNTED", 3)
    apply(*(report(f"g{number}", view=view(f"g{number}")) for number in range(5)))
    page = client.get("/api/v1/groups?limit=2")
    assert page.headers["X-Total-Count"] == "3"
    sizes = [2]
    while link := page.links.get("next"):
        page = client.get(link["url"])
        sizes.append(len(page.json()))
    assert sizes == [2, 2, 1]


def test_a_long_list_is_read_as_it_is_sent(apply, store, settings):
    """`limit=10000` took 324 MiB of memory for an answer of 49 MB: all of it stood there before the first byte went."""
    from starlette.requests import Request

    from streaming.serve.api import Api
    from streaming.serve.health import Health

    apply(*(report(f"g{n:03}", view=view(f"g{n:03}", members=100)) for n in range(200)))
    query = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"limit=10000"}
    answer = Api(store, settings, Health(1)).groups(Request(query))

    async def sent() -> tuple[int, int]:
        total = most = 0
        tracemalloc.start()
        async for piece in answer.body_iterator:
            total, most = total + len(piece), max(most, len(piece))
        return total, most

    total, most = asyncio.run(sent())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total > 7_000_000
    assert most < 1_000_000
    assert peak < 8_000_000, f"{peak:,} bytes for an answer of {total:,}"


def test_a_list_is_the_same_whatever_the_portions_it_is_read_in(apply, client, monkeypatch):
    apply(*(report(f"g{n}", finding(f"g{n}"), view=view(f"g{n}", members=n)) for n in range(9)))
    whole = [client.json(f"/api/v1/{what}") for what in ("groups", "incidents")]
    for name in ("_MEMBERS_AT_ONCE", "_INCIDENTS_AT_ONCE"):
        monkeypatch.setattr(f"streaming.store.reader.{name}", 3)
    monkeypatch.setattr("streaming.serve.api.PIECE_CHARACTERS", 1)
    assert [client.json(f"/api/v1/{what}") for what in ("groups", "incidents")] == whole
    assert [len(found) for found in whole] == [9, 9]
    assert client.json("/api/v1/quarantine") == []


def test_what_is_deleted_while_a_list_is_read_is_left_out(apply, store):
    apply(*(report(f"g{n}", view=view(f"g{n}", members=2_000)) for n in range(3)))
    page = store.read.groups()
    objects = iter(page)
    assert next(objects)["group"] == "g0"
    apply(report("g1", deleted=True))
    assert [found["group"] for found in objects] == ["g2"]


def test_ready_only_when_a_run_has_caught_up_and_is_at_work(apply, client, store):
    assert client.json("/readyz", 503)["reason"] == "no run has written to the store yet"
    apply(progress(), caught_up=False)
    assert client.json("/readyz", 503)["clusters"][0]["caught_up"] is False
    apply(progress())
    assert client.json("/readyz")["ready"] is True
    assert client.json("/healthz") == {"healthy": True}


def test_a_run_that_was_silent_before_serve_started_makes_nothing_ready(apply, client, store):
    apply(progress())
    sign_of_life(store, age_ms=2 * STALLED_MS)
    state = client.json("/readyz", 503)["clusters"][0]
    assert state["stalled"] is True
    assert 2 * STALLED_MS <= state["alive_age_ms"] < 3 * STALLED_MS
    apply(progress())
    assert client.json("/readyz")["ready"] is True


def test_one_cluster_that_is_behind_makes_the_whole_not_ready(apply, client):
    apply(progress())
    apply(progress(), cluster="dev", caught_up=False)
    behind = client.json("/readyz", 503)
    assert [state["caught_up"] for state in behind["clusters"]] == [False, True]
    assert behind["reason"] == "dev is catching up"
    assert client.json("/readyz?cluster=prod")["ready"] is True


@pytest.mark.parametrize("path", ["/", "/groups/orders", "/groups/none", "/api/v1/groups", "/metrics", "/nothing"])
def test_every_answer_forbids_scripts_and_framing(apply, client, path):
    apply(report(view=view()))
    headers = client.session.get(client.base + path, timeout=PATIENCE_S).headers
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"


def test_an_internal_error_forbids_them_too(store, client, monkeypatch):
    monkeypatch.setattr(store.read, "runs", lambda: 1 / 0)
    answer = client.get("/", 500)
    assert answer.json() == {"error": "internal error: ZeroDivisionError"}
    assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS


EVIL = "<img src=x onerror=alert(1)>\"'&{{7*7}}"


def test_a_page_escapes_every_string_of_a_stranger(apply, client):
    apply(report(EVIL, view=view(EVIL)))
    hostile = view(EVIL, leader=EVIL, protocol=EVIL, state="Stable", state_evidence=EVIL, type=EVIL, generation=4)
    hostile["members"][0] |= dict.fromkeys(("member_id", "instance_id", "client_id", "client_host", "liveness"), EVIL)
    hostile["members"][0]["assignment"] = [{"topic": EVIL, "partitions": [0]}]
    apply(
        report(EVIL, finding(EVIL, EVIL, summary=EVIL, cause=EVIL, client_host=EVIL), view=hostile),
    )
    apply(report(EVIL, finding(EVIL, EVIL, summary=EVIL, cause=EVIL, client_host=EVIL), view=hostile))
    for text in (client.get(f"/groups/{quote(EVIL, safe='')}").text, client.get("/").text):
        assert "<img" not in text
        assert "&lt;img src=x onerror=alert(1)&gt;" in text
        assert "{{7*7}}" in text


def test_the_style_of_a_page_is_the_one_its_policy_allows(client):
    import base64
    import hashlib
    import re

    answer = client.get("/")
    style = re.search(r"<style>(.*)</style>", answer.text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in answer.headers["Content-Security-Policy"]


def test_the_description_of_the_api_names_every_route_and_its_parameters(client):
    described = client.json("/api/v1/openapi.json")
    from streaming.serve.api import Api

    routes = {route.path.replace(":group_id", "") for route in Api(None, None, None).routes()}
    assert set(described["paths"]) == {path for path in routes if path.startswith("/api/")}
    for path, about in described["paths"].items():
        for parameter in about["get"]["parameters"]:
            if parameter["in"] == "query" and "enum" in parameter["schema"]:
                assert client.json(f"{path}?{parameter['name']}=odd", 400)
                assert client.get(f"{path}?{parameter['name']}={parameter['schema']['enum'][0]}")


def test_incidents_can_be_asked_for_by_severity_and_by_whether_somebody_was_told(apply, client):
    apply(report("orders", finding(severity="page"), finding(member="m-2")))
    assert [i["member_id"] for i in client.json("/api/v1/incidents?severity=page&told=true")] == ["m-1"]
    assert client.json("/api/v1/incidents?told=false") == []
    assert "told is" in client.json("/api/v1/incidents?told=maybe", 400)["error"]


def test_rejected_rows_and_messages_given_up_are_shown(apply, client, store):
    from tests.support.outputs import rejected

    apply(rejected(head="/wA="), report("orders", finding()))
    assert [(row["offset"], row["head"]) for row in client.json("/api/v1/quarantine")] == [(1, "/wA=")]
    store.outbox.fan_out({"hook": ("warn",)})
    (message,) = store.outbox.due("hook", wall_ms())
    store.outbox.failed([message.id], "answered 400", None)
    (dead,) = client.json("/api/v1/dead-letters")
    assert (dead["receiver"], dead["last_error"], dead["group"]) == ("hook", "answered 400", "orders")


def test_coverage_lists_when_lines_of_a_broker_are_missing(apply, client):
    assert client.json("/api/v1/coverage") == {"windows": [], "brokers": [], "clusters": []}
    apply(blind(1_000, None), blind(5_000, 6_000, "broker-2"), blind(1_000, None, shard=8))
    first, second = client.json(f"/api/v1/coverage?cluster={CLUSTER}")["windows"]
    assert (first["broker"], first["from_ms"], first["until_ms"], first["why"]) == (
        "broker-1",
        1_000,
        None,
        "lines lost",
    )
    assert (second["broker"], second["from_ms"], second["until_ms"]) == ("broker-2", 5_000, 6_000)
    apply(blind(1_000, 4_000), blind(3_000, 4_500, shard=8))
    ended_window, _ = client.json("/api/v1/coverage")["windows"]
    assert (ended_window["from_ms"], ended_window["until_ms"]) == (1_000, 4_500)
    apply(progress(), cluster="other")
    assert client.json("/api/v1/coverage?cluster=other")["windows"] == []


def test_coverage_tells_what_is_read_of_each_cluster_and_how_late_it_comes(apply, client):
    apply(report(view=view(members=2)), cluster="dev")
    apply(report(view=view(members=3)), progress())
    found = client.json("/api/v1/coverage")
    [broker] = found["brokers"]
    assert (broker["cluster"], broker["tier"], broker["covered"]) == (CLUSTER, 2, True)
    assert broker["delay_ms"] is not None
    assert broker["newest_line_ms"] >= START_MS
    tiers = {known["cluster"]: (known["tier"], known["groups"], known["members"]) for known in found["clusters"]}
    assert tiers == {CLUSTER: (2, 1, 3), "dev": (0, 1, 2)}
    assert [known["cluster"] for known in client.json("/api/v1/coverage?cluster=dev")["clusters"]] == ["dev"]
    assert client.json("/api/v1/coverage?cluster=dev")["brokers"] == []


def test_coverage_tells_a_cluster_of_which_only_the_coordinators_log_is_read(apply, client):
    apply(report(view=view(members=2)), progress(brokers={}, counts={"CoordinatorLine": 3}))
    found = client.json("/api/v1/coverage")
    assert (found["clusters"][0]["tier"], found["brokers"]) == (1, [])
    apply(progress())
    assert client.json("/api/v1/coverage")["clusters"][0]["tier"] == 2


def test_a_blind_window_that_one_shard_closed_stays_closed(apply, client):
    """Another shard that still has it open does not open it again."""
    apply(blind(1_000, 4_000), blind(1_000, None, shard=8))
    assert [window["until_ms"] for window in client.json("/api/v1/coverage")["windows"]] == [4_000]
