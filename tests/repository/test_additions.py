"""What may be added takes as many places as the file map names: a dummy of each is added to a copy of the code.

Only text is added, at the places of `docs/architecture.md`; then the copy runs on its own.
"""

import base64
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_model.decode.records import Outcome, RecordType, decode

ROOT = Path(__file__).parents[2]
NOW_MS = 1_700_000_000_000
CAPTURE = ROOT / "tests" / "fixtures" / "captures" / "kills.jsonl.gz"
GENERATED = shutil.ignore_patterns("__pycache__", "*.gz", "images")


class Copy:
    """A copy of the code that a test adds to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("coordinator_model", "streaming", "docs"):
            shutil.copytree(ROOT / name, root / name, ignore=GENERATED)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def add(self, path: str, line: str, *, before: str) -> None:
        """Add a line before another, of which there is one."""
        self.replace(path, f"\n{before}", f"\n{line}\n{before}")

    def replace(self, path: str, text: str, other: str) -> None:
        known = (self.root / path).read_text()
        assert known.count(text) == 1, (path, text)
        self.write(path, known.replace(text, other))

    def python(self, *arguments: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def replay(self, capture: Path) -> list[dict]:
        return [json.loads(line) for line in self.python("-m", "streaming.cli", "replay", str(capture)).splitlines()]


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path / "copy")


DUMMY_RULE = '''"""``dummy-rule``: a group is not stable."""

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, GroupState, Severity

DUMMY_RULE = Rule(
    id="dummy-rule",
    severities=(Severity.WARN,),
    evidence="observed",
    true_when="a group is not stable",
    clears="`dummy-over`",
    thresholds=("grace_ms",),
    ends_as="dummy-over",
)


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge a group."""
    if replica.state is GroupState.STABLE:
        return NOTHING
    finding = Finding(
        rule=DUMMY_RULE.id,
        severity=DUMMY_RULE.severity,
        opened_ms=1,
        at_ms=context.progress_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary="a dummy",
        **about_group(replica, context),
    )
    return Verdict(finding, None)
'''


def test_a_rule_is_a_module_a_line_in_the_registry_and_a_page(copy):
    copy.write("coordinator_model/rules/dummy_rule.py", DUMMY_RULE)
    registry = "coordinator_model/rules/registry.py"
    copy.add(registry, "    dummy_rule,", before="    group_set_aside,\n")
    copy.add(registry, "    Registered(dummy_rule.DUMMY_RULE, group=dummy_rule.judge),", before=")\nRULES = ")
    begin, end = copy.python("-c", "from docs.generate.rule_pages import *; print(BEGIN); print(END)").splitlines()
    copy.write("docs/rules/dummy-rule.md", f"# dummy-rule\n\n{begin}\n{end}\n")
    copy.python("-m", "docs.generate.rule_pages")
    assert "| true when | a group is not stable |" in (copy.root / "docs/rules/dummy-rule.md").read_text()
    assert "[dummy-rule](dummy-rule.md) | warn |" in (copy.root / "docs/rules/README.md").read_text()
    told = [line for line in copy.replay(CAPTURE) if line.get("rule") == "dummy-rule"]
    assert {(line["transition"], line["severity"]) for line in told} == {("opened", "warn"), ("closed", "warn")}
    assert {line["reason"] for line in told if "reason" in line} == {"dummy-over"}


def compact(text):
    """A string of a flexible version."""
    return bytes([len(text) + 1]) + text.encode()


def test_a_record_version_is_what_is_new_in_its_table(copy, tmp_path):
    key = struct.pack(">hh6s", RecordType.GROUP_METADATA, 6, b"orders")
    names = compact("consumer") + struct.pack(">i", 9) + compact("range") + compact("m-1")
    value = struct.pack(">h", 5) + names + struct.pack(">qBiB", NOW_MS, 1, 7, 0)  # no member, the dummy, no tag
    assert decode(key, value).outcome is Outcome.UNKNOWN_VERSION
    table = "coordinator_model/decode/records/group_metadata.py"
    copy.add(
        table, '            Field("dummy", Primitive.INT32, since=5),', before="        ),\n        latest_version=4"
    )
    copy.write(table, (copy.root / table).read_text().replace("latest_version=4", "latest_version=5"))
    program = "import sys; from coordinator_model.decode.records import decode; "
    read = "print(decode(*map(bytes.fromhex, sys.argv[1:])).value['dummy'])"
    assert copy.python("-c", program + read, key.hex(), value.hex()) == "7\n"
    row = {"source": "offsets", "topic": "__consumer_offsets", "partition": 0, "offset": 0, "timestamp_ms": NOW_MS}
    row |= {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
    capture = tmp_path / "capture.jsonl"
    capture.write_text(json.dumps(row))
    assert copy.replay(capture)[-1]["decoded"] == {"record-2": 1}


DUMMY_SOURCE = '''"""A source whose rows say that a group has committed."""

from coordinator_model.decode.source_row import SourceRow
from coordinator_model.decode.telemetry.pushed_metrics import MetricsReader
from coordinator_model.decode.telemetry.shipped import Zone
from coordinator_model.events import RECORD_RANK, Event, OffsetCommitted

DUMMY = "dummy"


def parse_dummy(row: SourceRow, _zone: Zone, _read_metrics: MetricsReader) -> list[Event]:
    """Read a row."""
    head = (row.timestamp_ms, RECORD_RANK, row.topic, row.partition, row.offset)
    return [OffsetCommitted(*head, (row.value or b"").decode(), "t", 0, tombstone=True)]
'''
PACK = """
import pyarrow as pa
from pathlib import Path
from streaming.config.kafka import Kafka
from streaming.run.packing import Routing
from streaming.run.source import PackRows

stage = PackRows(Routing(50), "__consumer_offsets", Path("live-keys.json"), Kafka().other_topics)
row = {"topic": "dummies", "partition": 0, "offset": 0, "timestamp_ms": 1_700_000_000_000, "key": None, "value": b"g"}
numbers = [("partition", pa.int32()), ("offset", pa.int64()), ("timestamp_ms", pa.int64())]
schema = pa.schema([("topic", pa.string()), *numbers, ("key", pa.binary()), ("value", pa.binary())])
[out] = stage(iter([pa.RecordBatch.from_pylist([row], schema)]))
print(Kafka().topics[-1], out.column("key").to_pylist() == [Routing(50).key_of("g", 0)])
"""


def test_a_source_is_a_module_a_parser_and_its_topics(copy, tmp_path):
    copy.write("coordinator_model/decode/dummy.py", DUMMY_SOURCE)
    parse, config = "coordinator_model/decode/parse.py", "streaming/config/kafka.py"
    imported = "from coordinator_model.decode.dummy import DUMMY, parse_dummy"
    copy.add(parse, imported, before="from coordinator_model.decode.records import")
    copy.add(parse, "    DUMMY: parse_dummy,", before='}\n"""Every source')
    copy.add(config, imported.partition(",")[0], before="from coordinator_model.decode.source_row")
    topics = '    dummy_topics: tuple[str, ...] = ("dummies",)\n    """Dummies."""'
    copy.add(config, topics, before="    client_telemetry_topics:")
    copy.add(config, "            DUMMY: self.dummy_topics,", before="        }\n\n    def spark_options")
    assert copy.python("-c", PACK) == "dummies True\n"
    row = {"source": "dummy", "topic": "dummies", "partition": 0, "offset": 0, "timestamp_ms": NOW_MS, "value": "g"}
    capture = tmp_path / "capture.jsonl"
    capture.write_text(json.dumps(row))
    assert copy.replay(capture)[-1]["decoded"] == {"offset-commit": 1}


DUMMY_RECEIVER = '''"""Nobody: says that everything is delivered."""

from collections.abc import Sequence

from streaming.serve.notify.base import Answer, Delivered, Payload


class Dummy:
    """Takes all."""

    forgets = False
    messages_at_once = 1

    def __init__(self, name: str, severities: Sequence[str]) -> None:
        self.name, self.severities = name, severities

    def send(self, payloads: Sequence[Payload]) -> Answer:
        """Do nothing."""
        return Delivered()
'''
DUMMY_BLOCK = '''class DummyReceiver(_Receiver):
    """`[[notify]]` for nobody."""

    kind: Literal["dummy"]
    """`dummy`."""
    called: str
    """How it is called."""


'''
SEND = """
import sys
from pathlib import Path
from docs.generate.configuration_page import keys
from streaming.config.settings import ConfigError, load
from streaming.serve.notify.receivers import receivers_of

[receiver] = receivers_of(load(Path("monitor.toml")))
print(receiver.name, receiver.severities, receiver.send([]))
print('`[[notify]]` with `kind = "dummy"`' in keys(), "| `called` |" in keys())
try:
    load(Path("wrong.toml"))
except ConfigError as error:
    print("called" in str(error))
"""


def test_a_receiver_is_a_module_a_block_of_the_configuration_and_a_case(copy):
    copy.write("streaming/serve/notify/dummy.py", DUMMY_RECEIVER)
    config, receivers = "streaming/config/settings.py", "streaming/serve/notify/receivers.py"
    copy.add(config, DUMMY_BLOCK, before="Receiver = Annotated[")
    copy.replace(config, "    AlertmanagerReceiver | Pager", "    DummyReceiver | AlertmanagerReceiver | Pager")
    imported = "from streaming.config.settings import DummyReceiver\nfrom streaming.serve.notify.dummy import Dummy"
    copy.add(receivers, imported, before="from streaming.serve.notify.log import")
    case = "            case DummyReceiver():\n                yield Dummy(block.called, at_least(block.min_severity))"
    copy.add(receivers, case, before="            case _:\n")
    copy.write("monitor.toml", '[[notify]]\nkind = "dummy"\ncalled = "nobody"\n')
    copy.write("wrong.toml", '[[notify]]\nkind = "dummy"\ncaled = "nobody"\n')
    assert copy.python("-c", SEND).splitlines() == ["nobody ('warn', 'page') Delivered()", "True True", "True"]
