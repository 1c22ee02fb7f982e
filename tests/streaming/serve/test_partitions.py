"""How far behind a group is, as programs and people ask for it."""

from urllib.parse import quote

import pytest

from streaming.serve.lag_view import HEIGHT, NOTES, PARTITIONS_SHOWN, line_of
from streaming.serve.openapi import OPENAPI
from streaming.serve.page import instant
from streaming.serve.timeline import WIDTH
from tests.support.outputs import CLUSTER, START_MS, columns, partition, partitions, report, view

CONTRACT = {
    "topic", "topic_id", "partition", "committed_offset", "committed_ms", "start_offset", "end_offset", "lag", "lag_ms",
    "status", "owner", "owner_host", "owned_since_ms", "generation",
}  # fmt: skip
UNKNOWN = partition(
    1, committed_offset=None, committed_ms=None, end_offset=None, lag=None, lag_ms=None, status="unknown", owner=None,
    rate=None, owned_since_ms=None,
)  # fmt: skip
NAMES = ("x", "a/b", "partitions", "x/partitions", "/partitions", "", "a\n", "a\nb/partitions", "..", "%2Fpartitions")


def path_of(group: str) -> str:
    return f"/api/v1/groups/{quote(group, safe='').replace('..', '%2E%2E')}"


class TestApi:
    def test_partitions_are_the_contracts_objects(self, apply, client):
        apply(report(view=view()), partitions("orders", partition(0, note="slow", metadata="<b>"), UNKNOWN))
        found = client.json("/api/v1/groups/orders/partitions")
        assert (found["complete"], found["lag"], found["status"], found["at_ms"]) == (False, 40, "ok", START_MS)
        first, second = found["partitions"]
        assert first.keys() >= CONTRACT
        shown = {name: first[name] for name in ("owner", "owner_host", "generation", "note", "metadata", "asked_ms")}
        assert shown == {
            "owner": "m-0", "owner_host": "10.0.0.7", "generation": 3, "note": "slow", "metadata": "<b>",
            "asked_ms": START_MS,
        }  # fmt: skip
        assert [second[name] for name in ("lag", "lag_ms", "committed_offset", "owner", "generation")] == [None] * 5

    def test_a_group_whose_partitions_are_all_known_is_complete(self, apply, client):
        apply(report(view=view()), partitions())
        assert client.json("/api/v1/groups/orders/partitions")["complete"] is True

    def test_a_list_that_was_cut_is_not_complete_and_says_how_much_is_missing(self, apply, client):
        apply(report(view=view()), partitions("orders") | {"columns": columns(partition(), left_out=3)})
        found = client.json("/api/v1/groups/orders/partitions")
        assert (len(found["partitions"]), found["left_out"], found["complete"]) == (1, 3, False)

    def test_a_group_that_was_not_judged_yet_has_no_partitions_and_is_not_complete(self, apply, client):
        apply(report(view=view()))
        found = client.json("/api/v1/groups/orders/partitions")
        assert (found["partitions"], found["complete"]) == ([], False)
        assert (found["at_ms"], found["lag"], found["status"]) == (None, None, "unknown")
        assert found.keys() == OPENAPI["components"]["schemas"]["Partitions"]["properties"].keys()

    def test_group_and_list_tell_lag_and_status(self, apply, client):
        apply(report(view=view()), report("idle", view=view("idle")), partitions("orders", partition(status="warn")))
        assert {g["group"]: (g["lag"], g["lag_status"]) for g in client.json("/api/v1/groups")} == {
            "orders": (40, "warn"),
            "idle": (None, None),
        }
        assert client.json("/api/v1/groups/orders")["lag"] == 40

    def test_a_group_of_several_clusters_must_be_named_with_its_cluster(self, apply, client):
        apply(report(view=view()), partitions())
        apply(report(view=view(cluster="dev")), partitions("orders", partition(lag=7)), cluster="dev")
        assert client.json("/api/v1/groups/orders/partitions", 400)["clusters"] == ["dev", CLUSTER]
        assert client.json("/api/v1/groups/orders/partitions?cluster=dev")["lag"] == 7

    def test_what_is_not_there_or_not_known_is_refused(self, apply, client):
        apply(report(view=view()), partitions())
        assert client.json("/api/v1/groups/order/partitions", 404)["error"].endswith("did you mean orders?")
        assert client.json("/api/v1/groups/orders/partitions?cluster=nowhere", 404)
        assert client.json("/api/v1/groups/orders/partitions?topic=x", 400)

    @pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
    def test_any_id_has_both_a_group_and_its_partitions(self, apply, client, name):
        """An id that ends in /partitions writes that slash as %2F; a slash as such leads to the partitions."""
        names = [*NAMES, "decoy"]
        apply(*(report(group, view=view(group)) for group in names))
        apply(*(partitions(group, partition(lag=place)) for place, group in enumerate(names)))
        assert client.json(path_of(name))["group"] == name
        assert client.json(f"{path_of(name)}/partitions")["lag"] == NAMES.index(name)

    def test_a_slash_written_as_such_before_partitions_is_never_of_the_id(self, apply, client):
        apply(report("x/partitions", view=view("x/partitions")))
        assert client.json("/api/v1/groups/x/partitions", 404)
        assert client.json("/api/v1/groups/x/partitions/partitions")["partitions"] == []
        assert client.json("/api/v1/groups/x%2fpartitions")["group"] == "x/partitions"


EVIL = "<img src=x onerror=alert(1)>\u202e'\""


def shown(text: str, heading: str) -> str:
    """One part of a page, its white space made single."""
    return " ".join(text.partition(f"<h2{heading}")[2].partition("<h2")[0].split())


class TestPage:
    def test_a_group_shows_its_partitions_with_owner_rate_and_last_commit(self, apply, client):
        rows = [partition(0, rate=1_234.5), partition(1, lag=90_000, status="stall", note="stuck", lag_ms=120_000),
                partition(2, lag=1, lag_ms=93_600_000)]  # fmt: skip
        apply(report(view=view()), partitions("orders", *rows))
        text = shown(client.get("/groups/orders").text, ' id="lag"')
        assert '<strong>90,041</strong> messages behind, status <span class="warn">stall</span>;' in text
        assert text.index("90,000</td>") < text.index("40</td>")
        for words in (
            NOTES["stuck"],
            "1,234.5",
            "120 s",
            "26 h",
            "960 of 1,000",
            instant(START_MS - 2_000),
            "<bdi>m-0</bdi>",
            "10.0.0.7",
            "generation 3",
        ):
            assert words in text
        assert '<meter class="lag" min="0" max="90000" value="40" aria-label="lag">' in text
        assert 'points="0.0,64.0 500.0,4.0 1000.0,28.0 "' in text
        assert 'aria-label="Lag over time: 40 messages now, 60 at most"' in text

    def test_what_is_not_known_is_blank_and_said(self, apply, client):
        apply(report(view=view()), partitions("orders", UNKNOWN, history=[]), report("new", view=view("new")))
        text = shown(client.get("/groups/orders").text, ' id="lag"')
        assert "Nobody knows how far behind, status" in text
        assert "not known of every partition" in text
        assert "None" not in text
        assert "<meter" not in text
        assert "polyline" not in text
        assert "nobody" in text
        assert "Nothing is known of this group's lag" in client.get("/groups/new").text

    def test_a_long_list_is_cut_and_says_so(self, apply, client):
        rows = [partition(number, lag=number) for number in range(PARTITIONS_SHOWN + 20)]
        apply(report(view=view()), partitions("orders", *rows, left_out=1_000))
        text = shown(client.get("/groups/orders").text, ' id="lag"')
        assert "Partitions (the worst 100 of 1,120)" in text
        assert text.count("<tr data-key=") == 100
        assert "119</td>" in text

    def test_the_overview_has_a_column_of_lag(self, apply, client):
        names = ("orders", "slow", "new")
        apply(*(report(name, view=view(name)) for name in names))
        apply(partitions("orders", partition(lag=12_345)), partitions("slow", partition(status="warn", lag=7)))
        text = client.get("/").text
        assert "<td>12,345</td>" in text
        assert '<td>7 <span class="warn">warn</span></td>' in text
        assert "<td></td>" in text

    def test_hostile_names_are_escaped(self, apply, client):
        owner = [EVIL, EVIL, EVIL, EVIL, 3]
        row = partition(topic=EVIL, topic_id=EVIL, metadata=EVIL, note=EVIL, owner=owner, status="ok")
        apply(report(EVIL, view=view(EVIL)), partitions(EVIL, row))
        text = client.get(f"/groups/{quote(EVIL, safe='')}").text
        assert "<img" not in text
        assert text.count("&lt;img") > 6


class TestLine:
    def test_the_line_goes_from_the_oldest_to_the_newest(self):
        line = line_of([[START_MS, 0], [START_MS + 5_000, 200], [START_MS + 10_000, 100]])
        assert line.points == [(0, HEIGHT - 4), (500, 4), (WIDTH, HEIGHT / 2)]
        assert (line.now, line.most) == (100, 200)

    @pytest.mark.parametrize("history", [[], [[START_MS, 5]]])
    def test_less_than_two_points_are_no_line(self, history):
        assert line_of(history) is None

    def test_it_stays_within_the_picture_whatever_it_is_of(self):
        line = line_of([[START_MS, 0], [START_MS, 2**70], [0, 0], [START_MS, 0]])
        for x, y in line.points:
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT
        assert line_of([[START_MS, 0], [START_MS + 1, 0]]).points
