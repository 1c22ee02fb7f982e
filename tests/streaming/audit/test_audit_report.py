"""What an audit concludes from records, and how it is written down: without a broker."""

import json
import re
from collections import Counter
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from coordinator_model.decode.parse import OFFSETS, RejectedRow, parse_row
from coordinator_model.decode.source_row import SourceRow
from coordinator_model.events import RecordRead
from coordinator_model.replica.group import GroupReplica
from streaming.audit.ask import Told, ToldGroup, _note
from streaming.audit.assess import HOUR_MS, Ledger, assess, returns
from streaming.audit.meanings import MEANINGS
from streaming.audit.read import Read, Window
from streaming.audit.report import Report, escaped, share_read
from streaming.audit.tiers import sources
from streaming.capture.file import open_text, read_rows
from streaming.cli import main
from streaming.connection.pushes import Pushes
from streaming.tiers import RECORDS_ONLY

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "fixtures" / "audit-sample.md"
FAR_S = float("inf")


def read_of(rows):
    """What an audit would have read, had these rows been all of the offsets topic."""
    read = Read()
    for row in sorted((r for r in rows if isinstance(r, SourceRow) and r.source == OFFSETS), key=lambda r: r.offset):
        window = read.partitions.setdefault(row.partition, Window(row.offset, row.offset))
        if row.offset != window.high:
            window.gaps.append(row.offset)
        events = parse_row(row)
        window.high = row.offset + 1
        window.events += [] if isinstance(events, RejectedRow) else [e for e in events if isinstance(e, RecordRead)]
        read.newest_ms = max(read.newest_ms, row.timestamp_ms)
    read.begins = {number: window.low for number, window in read.partitions.items()}
    read.wanted = read.read = sum(window.high - window.low for window in read.partitions.values())
    return read


def record(at_ms, generation, *members, offset=0, joined_ms=-1):
    value = {
        "protocolType": "consumer",
        "generation": generation,
        "protocol": "range",
        "leader": members[0] if members else None,
        "currentStateTimestamp": joined_ms,
        "members": [
            {
                "memberId": name,
                "groupInstanceId": None,
                "clientId": name.partition("-")[0],
                "clientHost": "/10.0.0.1",
                "rebalanceTimeout": 300_000,
                "sessionTimeout": 45_000,
                "subscription": b"",
                "assignment": b"",
            }
            for name in members
        ],
    }
    return RecordRead(at_ms, 0, "__consumer_offsets", 0, offset, "g", 2, {"group": "g"}, value)


def read_from(*events, gaps=()):
    last = events[-1].offset + 1
    return Read({0: Window(0, last, list(events), list(gaps))}, {0: 0}, last, last, events[-1].order_ms)


def assessed(*events, gaps=(), told=None):
    [group] = assess(read_from(*events, gaps=gaps), told or Told(), FAR_S).groups
    return {finding["rule"]: finding for finding in group["findings"]}


class TestAssess:
    def test_generations_without_a_record_were_aborted(self):
        found = assessed(record(1_000, 1, "a-1", offset=0), record(2_000, 5, "a-1", offset=1))
        assert found["rebalance-aborted"]["summary"].startswith("3 generations")

    def test_where_records_were_compacted_away_nothing_is_said_to_be_aborted(self):
        found = assessed(record(1_000, 1, "a-1", offset=0), record(2_000, 5, "a-1", offset=9), gaps=[9])
        assert "rebalance-aborted" not in found

    def test_a_leader_that_took_long_to_assign_made_a_slow_rebalance(self):
        first = record(1_000, 1, "a-1", offset=0)
        assert "rebalance-slow" not in assessed(first, record(40_000, 2, "a-1", offset=1, joined_ms=39_000))
        slow = assessed(first, record(40_000, 2, "a-1", offset=1, joined_ms=10_000))["rebalance-slow"]
        assert "30.0 s" in slow["summary"]

    def test_a_rolling_deploy_makes_nobody_a_flapping_member(self):
        events, names = [], [f"a-{n}" for n in range(4)]
        for step in range(9):
            here = [name for n, name in enumerate(names) if step % 2 == 0 or n != step // 2]
            if step % 2:
                names[step // 2] = f"a-new{step}"
            events.append(record(1_000 * step, step + 1, *here, offset=step))
        assert "member-flapping" not in assessed(*events)

    def test_a_client_that_comes_back_again_and_again_is_a_flapping_member(self):
        events = [
            record(1_000 * step, step + 1, "stays-1", *([f"b-{step}"] if step % 2 == 0 else []), offset=step)
            for step in range(9)
        ]
        assert assessed(*events)["member-flapping"]["summary"].startswith("b on 10.0.0.1 left and came back 4 times")

    def test_nothing_from_records_alone_about_the_past_is_a_page(self):
        events = [record(1_000 * step, step + 1, f"b-{step}", offset=step) for step in range(20)]
        assert {finding["severity"] for finding in assessed(*events).values()} <= {"warn", "info"}

    def test_a_return_counts_within_an_hour_only(self):
        a, b = ("a", "host"), ("b", "host")
        ledger = Ledger(GroupReplica("g"), whole=True)
        ledger.goings, ledger.comings = [(0, a), (10, b)], [(HOUR_MS + 1, a), (20, b)]
        assert returns(ledger) == Counter({b: 1})

    def test_a_long_client_id_leaves_room_for_what_is_said_of_it(self):
        events = [
            record(1_000 * step, step + 1, *(["x" * 5_000] if step % 2 == 0 else []), offset=step) for step in range(9)
        ]
        assert "x… on 10.0.0.1 left and came back 4 times" in assessed(*events)["member-flapping"]["summary"]

    def test_a_line_break_in_a_client_id_makes_no_host(self):
        events = [
            record(1_000 * step, step + 1, *(["a\nb"] if step % 2 == 0 else []), offset=step) for step in range(9)
        ]
        assert assess(read_from(*events), Told(), FAR_S).hosts == [("10.0.0.1", 4)]

    def test_a_deploy_of_many_members_makes_no_host_a_flapping_one(self):
        names = [f"a{n}-1" for n in range(6)]
        events = [record(0, 1, *names)]
        for step in range(6):
            without = [name for n, name in enumerate(names) if n != step]
            events.append(record(2_000 * step + 1_000, 2 * step + 2, *without, offset=2 * step + 1))
            events.append(record(2_000 * step + 2_000, 2 * step + 3, *names, offset=2 * step + 2))
        assert assess(read_from(*events), Told(), FAR_S).hosts == []

    def test_of_a_modern_group_that_was_read_in_part_the_members_are_unknown(self):
        told = Told(groups={"g": ToldGroup("consumer", "Stable", "consumer")})
        assert [g["members"] for g in assess(Read(), told, FAR_S).groups] == [None]

    def test_a_group_that_the_brokers_no_longer_list_is_not_told(self):
        told = Told(groups={"other": ToldGroup("classic", "Empty", "consumer", [])})
        read = Read({0: Window(0, 1, [record(1_000, 1, "a-1")])}, {0: 0}, 1, 1, 1_000)
        assert [group["group"] for group in assess(read, told, FAR_S).groups] == ["other"]

    def test_groups_of_a_broker_that_lists_none_are_told_from_their_records(self):
        told = Told(groups={"other": ToldGroup("classic", "Empty", "consumer", [])}, is_incomplete=True)
        read = Read({0: Window(0, 1, [record(1_000, 1, "a-1")])}, {0: 0}, 1, 1, 1_000)
        assert {group["group"]: group["members"] for group in assess(read, told, FAR_S).groups} == {"g": 1, "other": 0}


class TestStorm:
    def records(self, *memberships):
        return [record(5_000 * step, step + 1, *members, offset=step) for step, members in enumerate(memberships)]

    def test_a_group_that_grows_is_no_storm(self):
        grown = self.records(*([f"a{n}-1" for n in range(size)] for size in range(1, 12)))
        assert "rebalance-storm" not in assessed(*grown)

    def test_a_rolling_deploy_is_info(self):
        names = [f"a{n}-1" for n in range(4)]
        steps = [names]
        for n in range(4):
            steps += [[name for name in names if name != names[n]], names]
        storm = assessed(*self.records(*steps))["rebalance-storm"]
        assert storm["severity"] == "info"
        assert "as in a rolling deploy" in storm["summary"]

    def test_a_client_that_leaves_twice_in_one_window_is_a_warning(self):
        storm = assessed(*self.records(["a-1"], [], ["a-2"], [], ["a-3"], []))["rebalance-storm"]
        assert storm == {
            "rule": "rebalance-storm",
            "severity": "warn",
            "summary": "5 rebalances within 10 minutes, the last at 1970-01-01 00:00:25 UTC",
        }

    def test_members_that_rejoin_by_themselves_are_a_warning(self):
        assert assessed(*self.records(*[["a-1"]] * 6))["rebalance-storm"]["severity"] == "warn"

    def test_rebalances_far_apart_are_no_storm(self):
        apart = [record(HOUR_MS * step, step + 1, "a-1", offset=step) for step in range(20)]
        assert "rebalance-storm" not in assessed(*apart)


class TestRefused:
    @pytest.mark.parametrize(("code", "is_acl"), [(30, True), (16, False)])
    def test_only_a_denied_group_is_said_to_need_an_acl(self, code, is_acl):
        told = Told()
        _note({}, {"g": SimpleNamespace(error_code=code)}, told)
        assert ("Describe on the group is needed" in told.problems[0]) == is_acl


class TestMarkdown:
    @pytest.mark.parametrize(
        "name",
        [
            "a|b",
            "`x`",
            "<b>x</b>",
            "x\ny",
            "x\r\n# y",
            "\x1b[31mx",
            "[a](http://b)",
            "@all",
            "\u202ex",
            "*x*",
            "www.x.y",
        ],
    )
    def test_a_strangers_text_cannot_be_more_than_text(self, name):
        text = escaped(name)
        assert text.isprintable()
        for character in "|`[*<":
            assert character not in text.replace(f"\\{character}", "")
        assert "://" not in text
        assert "@" not in text

    @pytest.mark.parametrize(
        ("share", "told"), [(0, "0%"), (0.0001, "1%"), (0.42, "42%"), (0.9999, "99%"), (1, "100%")]
    )
    def test_a_share_is_said_to_be_all_only_where_it_is(self, share, told):
        assert share_read(share) == told

    def test_every_rule_of_the_documentation_is_explained_in_the_report_too(self):
        lines = (ROOT / "docs" / "audit.md").read_text().partition("| rule | severity |")[2].partition("\n\n")[0]
        rules = {name for line in lines.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", line.split("|")[1])}
        assert rules == MEANINGS.keys()

    def test_a_group_without_a_name_is_told_as_that(self):
        found = {"rule": "member-idle", "severity": "info", "summary": "s"}
        group = {"group": "", "state": "Stable", "type": "classic", "members": 1, "findings": [found]}
        assert "| (a group without a name) |" in Report("c", [group], [], [], 1.0, "").as_markdown()

    def test_an_empty_offsets_topic_is_not_called_unread(self):
        report = Report("c", [], [], [], 1.0, "")
        assert "The offsets topic holds no record." in report.as_markdown()

    def test_a_list_of_groups_that_was_cut_says_so_where_it_begins(self):
        finding = {"rule": "member-idle", "severity": "info", "summary": "m1 has nothing"}
        group = {"group": "g", "state": "Stable", "type": "classic", "members": 1, "findings": [finding]}
        for groups, heading in ((60, "the worst 50 of 60"), (50, "the worst first")):
            text = Report("c", [group] * groups, [], [], 1.0, "").as_markdown()
            assert f"\n## Groups with findings, {heading}\n" in text

    def test_a_long_name_is_cut(self):
        assert len(escaped("x" * 10_000)) == 100

    def test_a_shipped_capture_makes_the_report_of_the_documentation(self):
        with resources.as_file(resources.files("streaming.demo") / "sample.jsonl.gz") as path, open_text(path) as lines:
            read = read_of(read_rows(lines))
        found = assess(read, Told(), FAR_S)
        report = Report(
            "sample",
            found.groups,
            found.hosts,
            sources(RECORDS_ONLY, records=True, reports=False, pushes=Pushes.NOT_TAKEN),
            1.0,
            "the sample's end",
        )
        assert report.as_markdown() == GOLDEN.read_text()
        assert json.loads(report.as_json())["groups"] == found.groups


class TestCommand:
    def test_a_terminal_that_knows_only_latin_1_gets_utf_8(self, monkeypatch):
        report = Report("c\N{SNOWMAN}", [], [], [], 1.0, "")
        monkeypatch.setattr("streaming.commands.audit._made", lambda *_: report)
        result = CliRunner(charset="latin-1").invoke(main, ["audit", "--bootstrap-servers", "127.0.0.1:1"])
        assert result.exit_code == 0, result.output
        assert "\N{SNOWMAN}".encode() in result.stdout_bytes

    def run(self, *options):
        return CliRunner().invoke(main, ["audit", *options])

    def test_a_closed_port_is_a_failure_that_says_so(self):
        result = self.run("--bootstrap-servers", "127.0.0.1:1")
        assert result.exit_code == 1
        assert "nothing listens on this port" in result.output

    @pytest.mark.parametrize("options", [(), ("--bootstrap-servers", "nonsense")])
    def test_wrong_usage_is_2(self, options):
        assert self.run(*options).exit_code == 2

    def test_a_file_that_exists_is_not_overwritten(self, tmp_path):
        (tmp_path / "report.md").write_text("mine")
        result = self.run("--bootstrap-servers", "127.0.0.1:1", "--out", str(tmp_path / "report.md"))
        assert result.exit_code == 2
        assert "not overwritten" in result.output
        assert (tmp_path / "report.md").read_text() == "mine"

    def test_a_written_report_is_told_with_its_number_of_groups(self, monkeypatch, tmp_path):
        report = Report("c", [{"group": "orders"}], [], [], 1.0, "")
        monkeypatch.setattr("streaming.commands.audit._made", lambda *_: report)
        out = tmp_path / "report.json"
        result = self.run("--bootstrap-servers", "127.0.0.1:1", "--json", "--out", str(out))
        assert result.output == f"{out}: 1 group\n"

    def test_a_report_that_failed_leaves_no_file(self, tmp_path):
        assert self.run("--bootstrap-servers", "127.0.0.1:1", "--out", str(tmp_path / "report.md")).exit_code == 1
        assert list(tmp_path.iterdir()) == []
