"""The samples for log shippers say of limits, topic and file what `group-monitor log4j2` and the docs say."""

import re
from pathlib import Path

from ruamel.yaml import YAML

from streaming.log4j2 import PRODUCER
from streaming.telemetry_topics import REQUEST_LOG_CONFIGS, TELEMETRY_TOPIC

ROOT = Path(__file__).parents[2]
SAMPLES = {path.name: path.read_text() for path in (ROOT / "deploy" / "shippers").iterdir()}
FILE = "/var/log/kafka/group-telemetry.log"
MAX_LINE_BYTES = int(PRODUCER["max.request.size"][0])


def test_each_sample_reads_the_same_file_into_the_topic_and_is_told_in_the_docs():
    page = (ROOT / "docs" / "log-shippers.md").read_text()
    assert set(SAMPLES) == {"fluent-bit.conf", "vector.yaml", "filebeat.yml", "rsyslog.conf"}
    for name, text in SAMPLES.items():
        assert FILE in text
        assert re.search(rf'[ "]{TELEMETRY_TOPIC}["\n]', text)
        assert f"../deploy/shippers/{name}" in page
    assert f"--file {FILE}" in page


def test_no_sample_cuts_off_or_drops_a_line_that_the_topic_takes():
    assert int(REQUEST_LOG_CONFIGS["max.message.bytes"]) == MAX_LINE_BYTES
    vector, filebeat = (YAML(typ="safe").load(SAMPLES[name]) for name in ("vector.yaml", "filebeat.yml"))
    sink = vector["sinks"]["group_telemetry"]["librdkafka_options"]
    assert vector["sources"]["group_requests"]["max_line_bytes"] == int(sink["message.max.bytes"]) == MAX_LINE_BYTES
    [reads] = filebeat["filebeat.inputs"]
    assert reads["message_max_bytes"] == filebeat["output.kafka"]["max_message_bytes"] == MAX_LINE_BYTES
    assert f"message.max.bytes={MAX_LINE_BYTES}" in SAMPLES["rsyslog.conf"]
    assert re.search(rf"message.max.bytes +{MAX_LINE_BYTES}\n", SAMPLES["fluent-bit.conf"])


def test_each_sample_waits_for_all_replicas():
    for name, setting in {
        "fluent-bit.conf": "rdkafka.acks                all",
        "vector.yaml": "acks: all",
        "filebeat.yml": "required_acks: -1",
        "rsyslog.conf": "acks=all",
    }.items():
        assert setting in SAMPLES[name]
