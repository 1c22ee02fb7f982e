"""How far behind a group is, as programs and people ask for it."""

from urllib.parse import quote

import pytest

from tests.streaming.outputs import CLUSTER, START_MS, columns, partition, partitions, report, view

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
        assert (found["complete"], found["lag"], found["status"], found["at_ms"]) == (False, 40, "unknown", START_MS)
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
