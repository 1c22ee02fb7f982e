import json
import subprocess
import sys

import pytest

from streaming.run.catch_up import CatchUp
from streaming.run.failures import reason_of
from streaming.run.live_keys import LiveKeys, read_live_keys
from streaming.run.session import RunError, require_java
from streaming.run.spark_offsets import planned


def progress(end, rows_per_s=1_000.0):
    waking = {"endOffset": '{"offset": 17, "timestamp": 0}', "processedRowsPerSecond": 0.0}
    silent = {"endOffset": None}
    return {"sources": [waking, silent, {"endOffset": json.dumps(end), "processedRowsPerSecond": rows_per_s}]}


def test_it_has_caught_up_when_every_partition_is_at_its_start_time_end():
    catch_up = CatchUp({"records": {"0": 100, "1": 5}, "lines": {"0": 50}})
    assert catch_up.update(progress({"records": {"0": 20, "1": 5}, "lines": {"0": 50}})) == (
        "catching up: 0%, 80 records to go, 1,000 a second"
    )
    assert catch_up.update(progress({"records": {"0": 90, "1": 5}, "lines": {"0": 70}})) == (
        "catching up: 88%, 10 records to go, 1,000 a second"
    )
    assert not catch_up.done
    assert "caught up" in catch_up.update(progress({"records": {"0": 100, "1": 9}, "lines": {"0": 80}}))
    assert catch_up.done
    assert catch_up.update(progress({"records": {"0": 120}})) is None


def test_nothing_to_catch_up_with_is_caught_up():
    catch_up = CatchUp({"records": {"0": 0}})
    catch_up.update(progress({"records": {"0": 0}}))
    assert catch_up.done


def test_where_a_batch_will_have_caught_up_is_in_sparks_log_before_it_begins(tmp_path):
    catch_up = CatchUp({"records": {"0": 100, "1": 5}})
    folder = tmp_path / "offsets"
    folder.mkdir()
    metadata = json.dumps({"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": "2"}})
    trigger = json.dumps({"offset": 1, "timestamp": 0})
    for batch, end in enumerate((99, 100)):
        planned_ends = json.dumps({"records": {"0": end, "1": 5}})
        (folder / str(batch)).write_text(f"v1\n{metadata}\n{planned_ends}\n{trigger}")
    (folder / "2").write_text("v1\nof another version")
    assert planned(tmp_path, 0) == {"records": {"0": 99, "1": 5}}
    assert [catch_up.is_reached(planned(tmp_path, batch)) for batch in range(4)] == [False, True, False, False]


def test_a_failure_of_pages_is_told_in_the_line_that_names_it():
    pages = "[STREAM_FAILED] Query terminated\n  at org.apache.spark.Foo\nCaused by: org.apache.kafka.common.errors."
    pages += "TimeoutException: Timeout of 60000ms expired\n\tat java.base/java.lang.Thread.run"
    assert reason_of(RuntimeError(pages)) == (
        "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired"
    )
    assert reason_of(RuntimeError("")) == "RuntimeError"


def test_keys_that_hold_groups_are_remembered_until_they_hold_none(tmp_path):
    file = tmp_path / "live-keys.json"
    assert read_live_keys(file) is None
    LiveKeys(file).update({"3": 0, "17": 2, "4/a/ü": 1})
    assert read_live_keys(file) == ["17", "4/a/ü"]
    LiveKeys(file).update({"17": 0, "5": 1})
    assert read_live_keys(file) == ["4/a/ü", "5"]


@pytest.mark.parametrize("text", ["", "{", "\0\0", "7", '{"a": 1}', '["a", 1]', '"abc"'])
def test_a_file_of_keys_that_cannot_be_read_is_none_and_is_written_anew(tmp_path, text):
    """None: every key gets its ticks, answers, and stands in the file again."""
    file = tmp_path / "live-keys.json"
    file.write_text(text)
    assert read_live_keys(file) is None
    LiveKeys(file).update({"17": 1})
    assert read_live_keys(file) == ["17"]


def test_a_cluster_without_groups_is_known_to_have_none(tmp_path):
    LiveKeys(tmp_path / "live-keys.json").update({"3": 0})
    assert read_live_keys(tmp_path / "live-keys.json") == []


def test_a_missing_java_is_one_line_that_says_what_to_install(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(RunError, match=r"no Java found\. Java 17 or newer is needed"):
        require_java()


def test_a_java_too_old_is_named(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RunError, match="is Java 8"):
        require_java()


def test_a_worker_of_spark_loads_no_clients_of_the_database_and_of_kafka():
    """There is one for each core; those clients would cost it 50 MB and its start a second."""
    script = "import sys, streaming.run.operator, streaming.run.source; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"sqlalchemy", "alembic", "kafka", "streaming.store"} & {*loaded} == set()
