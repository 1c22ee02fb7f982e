"""`describe`, `watch`, `incidents`, `quarantine`: what people read of a running monitor, and what programs do."""

import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from streaming.cli import main
from streaming.commands import tables, watch
from streaming.commands.remote import Monitor
from tests.streaming.serve.conftest import STALLED_MS, sign_of_life
from tests.support.outputs import CLUSTER, START_MS, ended, finding, partition, partitions, rejected, report, view

EVIL = "a\x1b[2J\u202e[bold]x[/bold]"


@pytest.fixture
def command(client, monkeypatch):
    """Run a command against the served store; returns what it printed."""
    monkeypatch.setenv("COLUMNS", "220")

    def _run(*arguments, code=0):
        done = CliRunner().invoke(main, [*arguments, "--url", client.base])
        assert done.exit_code == code, done.output
        return done.output

    return _run


def test_describe_shows_a_group_with_members_incidents_and_what_happened(apply, command):
    apply(report("orders", finding(), view=view(members=2)))
    said = command("describe", "orders")
    for words in ("orders in prod: classic, Stable", "generation 3", "m-1", "10.0.0.7", "90%", "missed its session"):
        assert words in said
    assert json.loads(command("describe", "orders", "--json"))["members"][1]["member_id"] == "m-1"


def test_describe_the_page_and_the_api_tell_how_long_a_past_rebalance_took(apply, command, client):
    apply(report("orders", view=view()))
    began = {"began_ms": START_MS - 41_300, "joined_ms": START_MS - 300}
    apply(report("orders", view=view(generation=4, stable_since_ms=START_MS, rebalanced=began)))
    assert "rebalanced in 41.3 s" in command("describe", "orders")
    page = client.get("/groups/orders").text
    assert "<td>41.3 s<br>" in page
    assert "joining 41 s" in page
    newest = client.get("/api/v1/groups/orders").json()["generations"][0]
    assert (newest["took_ms"], newest["joining_ms"]) == (41_300, 41_000)


def test_describe_shows_how_far_behind_a_group_is_the_worst_partition_first(apply, command):
    rows = [
        partition(0, lag=0),
        partition(1, lag=50_000, rate=1_234.5),
        partition(2, lag=26_000, status="stall", note="stuck", owner=["w-7", None, "c", "10.0.0.9", 3]),
        partition(3, lag=None, status="unknown", committed_ms=None, owner=None),
    ]
    apply(report("orders", view=view()), partitions("orders", *rows))
    said = command("describe", "orders")
    assert "lag 76,000, 3 of 4 partitions behind or not known" in said
    assert said.index("orders-2") < said.index("orders-1") < said.index("orders-3")
    assert "orders-0" not in said
    for words in ("stall (stuck)", "w-7", "10.0.0.9", "not known", "never", "nobody", "1,234.5"):
        assert words in said
    assert tables.instant(START_MS - 2_000) in said
    assert "lag not known" not in said


def test_describe_shows_a_stopped_partition_before_slow_ones_that_are_further_behind(apply, command):
    """In the order of the page, so that no number of them leaves it out."""
    slow = [partition(number, lag=1_000_000, status="warn") for number in range(40)]
    apply(report("orders", view=view()), partitions("orders", *slow, partition(40, lag=5, status="stop")))
    said = command("describe", "orders")
    assert said.index("orders-40") < said.index("orders-0")
    assert "the worst 30 shown" in said


def test_describe_and_the_api_show_a_group_s_worst_incidents_first(apply, client, command):
    older = finding("orders", "m-0", severity="page")
    newer = finding("orders", "m-1", rule="poll-exceeded", opened_ms=START_MS + 5_000)
    apply(report("orders", older, newer, view=view(members=2)))
    assert [one["severity"] for one in client.json("/api/v1/groups/orders")["incidents"]] == ["page", "warn"]
    said = command("describe", "orders").partition("open incidents")[2]
    assert said.index("session-expired") < said.index("poll-exceeded")


def test_members_and_partitions_that_are_not_shown_are_counted(apply, client, command):
    shown = view("huge", members=2, members_total=7_000)
    shown["members"][0]["partitions_left_out"] = 1_234
    apply(report("huge", view=shown))
    page, said = client.get("/groups/huge").text, command("describe", "huge")
    assert "Members (showing 2 of 7000)" in page
    assert "and 1,234 more partitions" in page
    assert "members (showing 2 of 7,000)" in said
    assert "1,234 more" in said
    assert "<td>7000</td>" in client.get("/").text
    assert " 7000 " in command("describe")


def test_describe_cuts_a_long_list_of_partitions_and_says_so(apply, command):
    rows = [partition(number, lag=1_000 - number) for number in range(100)]
    apply(report("orders", view=view()), partitions("orders", *rows, left_out=7), report("new", view=view("new")))
    said = command("describe", "orders")
    assert "100 of 107 partitions behind or not known, the worst 30 shown" in said
    assert said.count("orders-") == 30
    assert "partitions behind" not in command("describe", "new")


def test_a_list_of_groups_tells_lag_and_status(apply, command):
    apply(report("orders", view=view()), partitions("orders", partition(lag=1_234_567, status="warn")))
    apply(report("fine", view=view("fine")), partitions("fine", partition(lag=5)), report("new", view=view("new")))
    for said in (command("describe"), command("watch", "--times", "1")):
        assert "1,234,567 warn" in said
        assert " 5 " in said
        assert "5 ok" not in said


def test_describe_without_a_group_lists_all(apply, command):
    apply(report("orders", view=view()), report("idle", view=view("idle", members=0, state="Empty")))
    assert {"orders", "idle"} <= set(command("describe").split())
    assert [group["group"] for group in json.loads(command("describe", "--json"))] == ["orders", "idle"]


def test_a_group_that_is_not_there_is_one_clear_line(apply, command):
    apply(report("orders", view=view()))
    assert command("describe", "nobody", code=1) == "Error: no such group\n"


def test_a_group_may_be_unknown_because_run_has_not_begun(command):
    told = "no such group; not current: no run has written to the store yet"
    assert command("describe", "orders", code=1) == f"Error: {told}\n"


@pytest.mark.parametrize("option", ["--group", "--cluster", "--rule"])
def test_bytes_that_are_no_text_are_one_clear_line(apply, command, option):
    apply(report("orders", view=view()))
    assert command("describe", "\udcff", code=1).startswith("Error: no such group")
    command("incidents", option, "\udcff", code=1)


def test_a_group_of_two_clusters_asks_for_one_of_them(apply, command):
    apply(report(view=view()))
    apply(report(view=view(cluster="dev")), cluster="dev")
    assert "add ?cluster=: dev, prod" in command("describe", "orders", code=1)
    assert "in dev:" in command("describe", "orders", "--cluster", "dev")


def test_a_page_is_listed_before_newer_warnings(apply, command):
    """If there were more than are shown, the page that woke somebody was not among them."""
    apply(report("orders", finding(severity="page"), view=view()))
    newer = [finding(member=f"m-{number}", severity="warn", opened_ms=START_MS + number) for number in (2, 3)]
    apply(report("orders", finding(severity="page"), *newer, view=view()))
    assert [one["severity"] for one in json.loads(command("incidents", "--json"))] == ["page", "warn", "warn"]


def test_incidents_are_the_open_ones_unless_asked(apply, command):
    apply(report("orders", finding(), finding(member="m-2")))
    apply(report("orders", finding(), ended(finding(member="m-2"), START_MS + 9_000)))
    assert [i["member_id"] for i in json.loads(command("incidents", "--json"))] == ["m-1"]
    assert "open" in command("incidents")
    assert [i["member_id"] for i in json.loads(command("incidents", "--state", "closed", "--json"))] == ["m-2"]


def test_would_have_paged_lists_the_pages_that_woke_nobody(apply, command, settings):
    """A team tries the rules before they wake anybody: mode = "record"."""
    quiet = settings.model_copy(
        update={"cluster": CLUSTER, "groups": (type(settings.groups[0])(pattern="quiet", mode="record"),)}
    )
    apply.store.apply_batch(
        checkpoint_id="quiet", batch_id=0, settings=quiet,
        outputs=[
            report("quiet", finding("quiet", severity="page"), finding("quiet", "m-2")),
            report("orders", finding(severity="page")),
        ],
    )  # fmt: skip
    (found,) = json.loads(command("incidents", "--would-have-paged", "--json"))
    assert (found["group"], found["member_id"], found["told"]) == ("quiet", "m-1", False)
    assert "would have paged (1)" in command("incidents", "--would-have-paged")


def test_quarantine_shows_where_a_row_lies_and_how_it_begins(apply, command):
    apply(rejected(offset=41), rejected(offset=42, head="/wB7"))
    rows = json.loads(command("quarantine", "--json"))
    assert [row["offset"] for row in rows] == [42, 41]
    assert "\\xff\\u0000{" in command("quarantine")


def test_watch_looks_as_often_as_told_and_shows_trouble_first(apply, command):
    apply(report("orders", finding(), view=view()), report("busy", view=view("busy", state="PreparingRebalance")))
    said = command("watch", "--times", "2", "--every", "0.2")
    assert "2 groups, 1 open incident," in said
    assert said.rindex("orders") < said.index("busy")
    looks = command("watch", "--times", "2", "--every", "0.2", "--json").splitlines()
    assert [len(json.loads(look)["groups"]) for look in looks] == [2, 2]


def test_watch_and_describe_say_that_the_cluster_makes_no_progress(apply, command, store):
    apply(report("orders", view=view()))
    watched, described = ("watch", "--times", "1"), ("describe", "orders")
    sign_of_life(store, 2 * STALLED_MS)
    for said in (command(*watched), command(*described)):
        assert "not current: prod makes no progress" in said
    assert json.loads(command(*watched, "--json"))["not_current"] == "prod makes no progress"
    apply(report("orders", view=view()))
    assert "not current" not in command(*watched) + command(*described)
    assert json.loads(command(*watched, "--json"))["not_current"] is None


@pytest.mark.parametrize(("options", "full_screen"), [(["--times", "1"], False), ([], True)])
def test_watch_that_ends_by_itself_leaves_its_last_look_on_the_terminal(
    apply, command, monkeypatch, options, full_screen
):
    def interrupted(_):
        raise KeyboardInterrupt

    apply(report("orders", view=view()))
    monkeypatch.setattr(tables, "console", lambda: Console(force_terminal=True, width=100))
    monkeypatch.setattr(watch.time, "sleep", interrupted)
    assert ("\x1b[?1049h" in command("watch", *options)) == full_screen


def test_a_hostile_name_steers_no_terminal_and_is_no_markup(apply, command):
    owned = partition(topic=EVIL, note=EVIL, owner=[EVIL, EVIL, EVIL, EVIL, 3])
    apply(
        report(EVIL, finding(EVIL, EVIL, summary=EVIL), view=view(EVIL, leader=EVIL, state=EVIL)),
        rejected(reason=EVIL),
        partitions(EVIL, owned),
    )
    for arguments in (["describe", EVIL], ["describe"], ["incidents"], ["quarantine"], ["watch", "--times", "1"]):
        said = command(*arguments)
        assert not {"\x1b", "\u202e"} & set(said)
        assert "[bold]x" in said


def test_nobody_there_is_one_clear_line(command):
    done = CliRunner().invoke(main, ["incidents", "--url", "http://127.0.0.1:9"])
    assert done.exit_code == 1
    assert (
        done.output
        == "Error: no monitor answers at http://127.0.0.1:9: [Errno 111] Connection refused; is `serve` running?\n"
    )
    assert "http://" in CliRunner().invoke(main, ["incidents", "--url", "file:///etc/passwd"]).output


def many(apply, count=7):
    """So many groups, each with an open incident, and as many rows that could not be understood."""
    names = [f"group-{number}" for number in range(count)]
    apply(
        *(report(name, finding(name), view=view(name)) for name in names), *(rejected(offset=n) for n in range(count))
    )


class TestListsThatWereCut:
    @pytest.mark.parametrize(
        ("arguments", "what"),
        [(["describe"], "groups"), (["incidents"], "open incidents"), (["quarantine"], "quarantine")],
    )
    def test_a_list_that_was_cut_says_so_and_a_whole_one_does_not(self, apply, command, arguments, what):
        many(apply)
        assert f"{what}: showing 3 of 7; --limit shows more" in command(*arguments, "--limit", "3")
        assert f"{what} (7)" in command(*arguments, "--limit", "7")

    @pytest.mark.parametrize("name", ["describe", "incidents", "quarantine"])
    def test_as_json_the_list_stays_the_api_s_and_the_note_goes_to_stderr(self, apply, client, name):
        many(apply)
        done = CliRunner().invoke(main, [name, "--url", client.base, "--json", "--limit", "3"])
        assert len(json.loads(done.stdout)) == 3
        assert "showing 3 of 7" in done.stderr

    def test_watch_says_how_much_of_it_has_no_room(self, apply, command, monkeypatch):
        many(apply, 30)
        monkeypatch.setenv("LINES", "24")
        assert "6 of 30 groups, 6 of 30 open incidents" in command("watch", "--times", "1")
        look = json.loads(command("watch", "--times", "1", "--json"))
        assert (look["groups_total"], look["incidents_total"]) == (30, 30)

    def test_watch_asks_for_no_more_than_it_has_room_for(self, apply, command, monkeypatch):
        """Every second it asked for the views of 1,000 groups with all their members."""
        many(apply, 30)
        monkeypatch.setenv("LINES", "24")
        asked, original = [], Monitor.listing

        def counted(self, path, **parameters):
            asked.append(original(self, path, **parameters))
            return asked[-1]

        monkeypatch.setattr(Monitor, "listing", counted)
        command("watch", "--times", "1")
        assert [(len(listing.objects), listing.total) for listing in asked] == [(24, 30), (24, 30)]

    @pytest.mark.parametrize("path", ["groups", "incidents", "quarantine", "dead-letters"])
    def test_every_list_of_the_api_tells_its_total(self, apply, client, path):
        many(apply)
        answer = client.get(f"/api/v1/{path}?limit=3")
        total = int(answer.headers["X-Total-Count"])
        assert total == (0 if path == "dead-letters" else 7)
        assert ('rel="next"' in answer.headers.get("Link", "")) == (total > 3)

    def test_the_page_tells_how_many_rows_it_shows(self, apply, client, monkeypatch):
        many(apply)
        monkeypatch.setattr("streaming.serve.page.INCIDENTS_SHOWN", 2)
        monkeypatch.setattr("streaming.serve.page.GROUPS_SHOWN", 2)
        page = client.get("/").text
        assert "Open incidents (showing 2 of 7)" in page
        assert "Groups (2 of 7" in page


@pytest.mark.parametrize(("typed", "meant"), [("ordres", "orders"), ("order", "orders"), ("payments", None)])
def test_a_mistyped_group_is_answered_with_the_nearest(apply, command, typed, meant):
    apply(report("orders", view=view()), report("o%_", view=view("o%_")))
    hint = f"; did you mean {meant}?" if meant else ""
    assert command("describe", typed, code=1) == f"Error: no such group{hint}\n"
    assert command("incidents", "--group", typed, code=1) == f"Error: no such group{hint}\n"


def test_of_a_group_that_is_well_or_was_deleted_there_are_no_open_incidents(apply, command):
    apply(report("well", view=view("well")), report("gone", finding("gone"), view=view("gone")))
    apply(report("gone", deleted=True))
    for group, known in (("well", 0), ("gone", 0), ("other", 1)):
        command("incidents", "--group", group, "--cluster", CLUSTER, code=known)


SUMMARY = (
    "orders-consumer-1 missed its session timeout of 10,000 ms: its last heartbeat was 10,512 ms before, host 10.0.0.7"
)


class TestNarrow:
    """A terminal of 80 columns."""

    @pytest.fixture(autouse=True)
    def columns(self, apply, command, monkeypatch):
        member = "orders-consumer-1-0f0b1c5e-9a57-4d5e-8a3c-5f5f4a3d2b1c"
        apply(report("orders", finding("orders", member, summary=SUMMARY), view=view(members=2)), rejected(reason="x"))
        row = partition(topic="orders-created-in-europe", owner=[member, None, "c", "10.0.0.7", 3], status="stall")
        apply(partitions("orders", row | {"lag": 123_456_789_012, "note": "stuck"}))
        monkeypatch.setenv("COLUMNS", "80")

    @pytest.mark.parametrize("arguments", [["incidents"], ["describe"], ["quarantine"], ["watch", "--times", "1"]])
    def test_no_line_is_longer_and_no_row_takes_more_than_four(self, command, arguments):
        lines = command(*arguments).splitlines()
        assert max(map(len, lines)) <= 80
        assert len(lines) <= 14

    def test_an_incident_is_its_facts_and_its_summary_in_whole_words(self, command):
        _, head, *rest = command("incidents").splitlines()
        assert head.split()[2:] == ["warn", "session-expired", "orders"]
        assert len(rest) == 2
        assert " ".join(" ".join(rest).split()) == SUMMARY

    def test_members_are_blocks_too(self, command):
        said = command("describe", "orders")
        assert max(map(len, said.splitlines())) <= 80
        assert "at 10.0.0.7" in said
        assert "orders-created-in-europe-0  lag 123,456,789,012  stall (stuck)" in said
