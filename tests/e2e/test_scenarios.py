"""Faults on real clusters: the monitor's reports equal the brokers' own logs, member by member."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from streaming.embedded.truth import LEFT
from tests.e2e.compare import opened_twice, poll_rows, rebalance_rows, refuted, replay, session_rows, table
from tests.e2e.scenarios import SCENARIOS

pytestmark = pytest.mark.e2e
AT_ONCE = 2  # they mostly wait for Kafka's timeouts


@pytest.fixture(scope="module")
def playing(tmp_path_factory):
    """The scenarios, each started on a cluster of its own."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(play, tmp_path_factory.mktemp(name)) for name, play in SCENARIOS.items()}
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module", params=SCENARIOS)
def story(request, playing):
    """A scenario played once, and what `replay` prints for its capture."""
    played = playing[request.param].result()
    return played, replay(played)


def test_sessions_expire_for_exactly_those_whom_the_brokers_log_names(story):
    """After a restart a deadline may be known within an interval only (WITHIN), if probes have no line."""
    played, printed = story
    rows = session_rows(played.truth, printed)
    assert rows, "a scenario without an expiry proves nothing"
    assert all(row.verdict in ("ok", "WITHIN") for row in rows), "\n" + table(rows)


def test_no_living_member_was_ever_accused(story):
    _, printed = story
    assert refuted(printed) == []


def test_an_incident_opens_once_and_closes_at_most_once(story):
    _, printed = story
    assert opened_twice(printed) == []
    closed = [line["incident_id"] for line in printed if line["kind"] == "incident" and line["transition"] == "closed"]
    assert len(closed) == len(set(closed))


def test_rebalance_timeouts_are_those_of_the_log(story):
    played, printed = story
    rows = rebalance_rows(played.truth, printed)
    assert all(row.verdict == "ok" for row in rows), "\n" + table(rows)


def test_poll_breaches_are_those_of_the_members_that_stopped_polling(story):
    """On a busy machine more members may stop than were told to, and one may return on another connection (UNTOLD)."""
    played, printed = story
    rows = poll_rows(played, played.truth, printed)
    assert all(row.verdict in ("ok", "UNTOLD") for row in rows), "\n" + table(rows)
    left = {event.group for event in played.truth if event.kind == LEFT and event.group.startswith("poll-")}
    assert left <= {row.group for row in rows}


def test_the_groups_at_the_end_are_as_the_brokers_describe_them(story):
    played, printed = story
    seen = {
        line["group"]: {
            "state": line["state"].upper(),
            "members": {
                member["member_id"]: sorted(number for owned in member["assignment"] for number in owned["partitions"])
                for member in line["members"]
            },
        }
        for line in printed
        if line["kind"] == "group"
    }
    described = {
        name: {
            "state": group["state"],
            "members": {
                member_id: sorted(number for _, number in owned) for member_id, owned in group["members"].items()
            },
        }
        for name, group in played.groups.items()
    }
    assert json.dumps(seen, indent=1, sort_keys=True) == json.dumps(described, indent=1, sort_keys=True)
