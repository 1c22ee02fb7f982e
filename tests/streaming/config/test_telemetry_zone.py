"""The brokers' zone: by its name, in a configuration, and in a capture that names it."""

import base64
import json
import pickle
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from coordinator_model.decode.telemetry.shipped import utc
from streaming.capture.cluster_rows import ClusterRows
from streaming.cli import main
from streaming.config.settings import ConfigError, load
from streaming.config.telemetry_zone import FIELD, zone_named
from tests.support.story import T0, stable

HOUR_MS = 3_600_000
# 2026-07-01 12:00 and 2026-10-25 02:30 and 2026-03-29 02:30, as if clocks showed UTC
SUMMER_MS, SET_BACK_MS, SKIPPED_MS = 1_782_907_200_000, 1_792_895_400_000, 1_774_751_400_000


@pytest.mark.parametrize(("name", "local_ms", "hours"), [
    ("Europe/Berlin", SUMMER_MS, [2]), ("Europe/Berlin", SET_BACK_MS, [1, 2]), ("America/New_York", SUMMER_MS, [-4]),
    ("Asia/Kolkata", SUMMER_MS, [5.5]), ("+02:00", SUMMER_MS, [2]), ("-0430", SET_BACK_MS, [-4.5]),
])  # fmt: skip
def test_a_zone_tells_the_instants_at_which_its_clocks_show_a_time(name, local_ms, hours):
    zone = zone_named(name)
    assert sorted(local_ms - at_ms for at_ms in zone(local_ms)) == [hour * HOUR_MS for hour in hours]
    assert pickle.loads(pickle.dumps(zone))(local_ms) == zone(local_ms)  # noqa: S301 # as it goes to Spark's workers


def test_a_time_that_clocks_skip_has_an_instant_all_the_same():
    assert zone_named("Europe/Berlin")(SKIPPED_MS)


@pytest.mark.parametrize("name", [None, "UTC", "Z"])
def test_without_a_zone_it_is_utc(name):
    assert zone_named(name) is utc


@pytest.mark.parametrize("name", ["Europe/Bonn", "", "../../etc/passwd", "+2", "+25:00", "/etc/localtime"])
def test_a_zone_that_there_is_none_of_is_an_error(name, tmp_path):
    with pytest.raises(ValueError, match="is no time zone known here"):
        zone_named(name)
    (tmp_path / "monitor.toml").write_text(f'[kafka]\ntelemetry_zone = "{name}"\n')
    with pytest.raises(ConfigError, match="is no time zone known here"):
        load(tmp_path / "monitor.toml")


# ------------------------------------------------------------------------------------------------ replay


def shipped(zone):
    """A capture in which m2 dies, of lines that a shipper has read in brokers' files, a second late."""
    for row in stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_000, 6_000).source_rows(20_000):
        value, at_ms = row.value, row.timestamp_ms
        if row.source == "telemetry":
            date = datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
            value, at_ms = f"[{date}] DEBUG {value.decode()} (kafka.request.logger)".encode(), at_ms + 1_000
        yield row._replace(value=value, timestamp_ms=at_ms)


def written(row):
    more = {"topic": row.topic, "partition": row.partition, "offset": row.offset, "timestamp_ms": row.timestamp_ms}
    if row.source == "telemetry":
        return json.dumps({"source": row.source, **more, "key": row.key.decode(), "value": row.value.decode()})
    texts = {name: base64.b64encode(getattr(row, name)).decode() for name in ("key", "value")}
    return json.dumps({"source": row.source, **more, **texts})


def replay(folder, zone, *options, cluster=None):
    lines = [written(row) for row in shipped(zone)]
    if cluster is not None:
        lines.append(json.dumps({"source": "cluster", "timestamp_ms": T0, FIELD: cluster}))
    (folder / "capture.jsonl").write_text("\n".join(lines) + "\n")
    printed = CliRunner().invoke(main, ["replay", str(folder / "capture.jsonl"), *options], catch_exceptions=False)
    return [json.loads(line) for line in printed.stdout.splitlines()]


def expired(printed):
    said = [line for line in printed if line["kind"] == "incident" and line["rule"] == "session-expired"]
    return [(line["member_id"], line["deadline_ms"] - T0) for line in said if line["transition"] == "opened"]


TRUTH = [("m2", 12_000)]


def test_a_replay_reads_dates_in_utc_unless_told_otherwise(tmp_path):
    assert expired(replay(tmp_path, "UTC")) == TRUTH


def test_a_replay_reads_them_in_the_configured_zone(tmp_path):
    config = tmp_path / "monitor.toml"
    config.write_text('[kafka]\ntelemetry_zone = "America/New_York"\n')
    assert expired(replay(tmp_path, "America/New_York", "--config", str(config))) == TRUTH


def test_a_replay_reads_them_in_the_zone_that_the_capture_names_wherever_that_stands(tmp_path):
    assert expired(replay(tmp_path, "Europe/Berlin", cluster="Europe/Berlin")) == TRUTH


@pytest.mark.parametrize("cluster", [None, "Europe/Bonn", 7])
def test_lines_in_another_zone_are_counted_with_a_reason_that_names_the_setting(tmp_path, cluster):
    *_, summary = printed = replay(tmp_path, "Europe/Berlin", cluster=cluster)
    assert expired(printed) == []
    [(reason, count)] = summary["undecodable"].items()
    assert "telemetry_zone" in reason
    assert count > 40


def test_a_capture_names_the_zone_that_is_configured(monkeypatch):
    lines = []
    rows = ClusterRows({}, "__consumer_offsets", "nonce", lines.extend, "Europe/Berlin")
    monkeypatch.setattr(rows, "_facts", dict)
    rows._take({"source": "cluster", "timestamp_ms": T0})
    assert [json.loads(line)[FIELD] for line in lines] == ["Europe/Berlin"]
