"""Our decoder against Kafka's own generated classes and JSON converters, on random, damaged and hostile records.

`RecordOracle.java` makes the records from a seed and says how Kafka decodes them. The tests are skipped, with the
reason, if the broker's jars or a Java that can compile are missing. To try more by hand: `ORACLE_SEED=7
ORACLE_COUNT=2000 pytest …`.
"""

import itertools
import json
import os
import random
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coordinator_model.decode.member_protocol import assignment, subscription
from streaming.commands.decode import decode_command
from streaming.embedded.java import JavaMissingError, java_command

REPOSITORY = Path(__file__).parents[2]
JARS = Path(os.environ.get("GROUP_MONITOR_JARS", REPOSITORY / ".jars")) / "broker"
SEED = os.environ.get("ORACLE_SEED", "1")
COUNT = os.environ.get("ORACLE_COUNT", "200")
KEPT_SEED = "434"
KEPT = REPOSITORY / "tests/fixtures/consumer_offsets/kafka-4.3.1.jsonl"

Row = dict[str, Any]


@pytest.fixture(scope="module")
def java():
    try:
        java = java_command()
    except JavaMissingError as missing:
        pytest.skip(str(missing))
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler@" not in modules:
        pytest.skip(f"{java} cannot compile (no module jdk.compiler): a JDK is needed, not a JRE")
    if not any(JARS.glob("kafka-group-coordinator-4.3.1.jar")):
        pytest.skip(f"no broker jars in {JARS}: make setup")
    return java


def oracle(java: str, *arguments: str, stdin: str = "") -> str:
    command = [java, "-cp", f"{JARS}/*", str(Path(__file__).with_name("RecordOracle.java")), *arguments]
    done = subprocess.run(command, input=stdin.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def assert_agreement(rows: str) -> set[tuple[int, int]]:
    """Check that our command says of every row what Kafka says; return the (type, version) pairs that were decoded."""
    answers = CliRunner().invoke(decode_command, input=rows.encode()).stdout_bytes.decode().splitlines()
    decoded = set()
    for row, answer in zip(map(json.loads, rows.splitlines()), map(json.loads, answers), strict=True):
        error = answer.pop("error", None)
        assert answer == row["expected"], (row["key"], row["value"], error)
        assert (error is None) == (answer["outcome"] in {"decoded", "tombstone"})
        if answer["outcome"] == "decoded":
            decoded.add((answer["key"]["type"], answer["value"]["version"]))
    return decoded


def test_random_and_damaged_records_of_every_type_and_version(java):
    decoded = assert_agreement(oracle(java, SEED, COUNT))
    assert decoded >= {(type_, 0) for type_ in range(24) if type_ not in {9, 18}}
    assert decoded >= {(type_, version) for type_ in (1, 2) for version in range(5)}


def test_strings_that_are_not_utf8_read_as_java_reads_them(java):
    leads = [0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    chance = random.Random(SEED)
    strings = [bytes(text) for size in (1, 2, 3) for text in itertools.product(leads, repeat=size)]
    strings += [bytes(chance.choices(leads, k=chance.randrange(4, 16))) for _ in range(5_000)]
    keys = [b"\x00\x02" + len(text).to_bytes(2, "big") + text for text in strings]
    assert_agreement(judged(java, [(key, None) for key in keys]))


def test_hostile_tagged_sections(java):
    """Doubled tags, wrong sizes, explicit defaults and nulls, unknown tags, counts and sizes that wrap."""
    assert assert_agreement(judged(java, hostile_tags(random.Random(SEED), 10_000)))


def test_hostile_lengths(java):
    chance = random.Random(SEED)
    lengths = [0, 1, 2, 32_768, 32_769, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF]
    values = [
        b"\x00\x00" + uvarint(chance.choice(lengths)) + chance.randbytes(chance.randrange(40)) for _ in range(2_000)
    ]
    assert_agreement(judged(java, [(TAGGED[5][0], value) for value in values]))


def test_the_kept_answers_are_the_oracles(java):
    """The fixture that machines without Java check against cannot drift from Kafka."""
    assert oracle(java, KEPT_SEED, "1") == KEPT.read_text(encoding="ascii")


def test_subscriptions_and_assignments(java):
    """We read what Kafka reads, in the same way; what it cannot read is None, or topics read as version 0."""
    rows = list(map(json.loads, oracle(java, SEED, COUNT, "blobs").splitlines()))
    assert len(rows) >= int(COUNT)
    for row in rows:
        blob, expected = bytes.fromhex(row["blob"]), row["expected"]
        if row["kind"] == "assignment":
            ours = assignment(blob)
            assert expected is None or ours == pairs(expected["assignedPartitions"]), row
        else:
            ours = subscription(blob)
            assert expected is None or (ours is not None and plain(ours) == wanted(expected)), row


# What the oracle is asked about


def judged(java: str, records: list[tuple[bytes, bytes | None]]) -> str:
    rows = [{"key": key.hex(), "value": None if value is None else value.hex()} for key, value in records]
    return oracle(java, "-", stdin="\n".join(map(json.dumps, rows)))


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


TAGGED = {  # type: key, value up to its tagged section
    1: (bytes.fromhex("000100016700017400000007"), bytes.fromhex("0004000000000000002a00000005026d0000018bcfe56800")),
    3: (bytes.fromhex("0003000167"), bytes.fromhex("000000000005")),
    5: (
        bytes.fromhex("000500016700026d31"),
        bytes.fromhex("000000000363310a2f31302e302e302e3102027401000493e000"),
    ),
    6: (bytes.fromhex("0006000167"), bytes.fromhex("000000000005")),
    17: (bytes.fromhex("0011000167"), bytes.fromhex("0000000000050000000000000007")),
}
TAG_CONTENTS = [
    *(bytes(size) for size in (0, 1, 4, 8, 16)),
    *(b"\x01", b"\x02", b"\xff" * 4, bytes(15) + b"\x01"),
    bytes.fromhex("01000000000100"),  # an empty struct
    bytes.fromhex("0100000000010105 0161"),  # an empty struct with an unknown tag
    bytes.fromhex("01000000050100"),
    bytes.fromhex("02026b027600"),  # an array with one {k: v}
    *(uvarint(count) for count in (0x80000000, 0xFFFFFFFB, 0xFFFFFFFF)),
]


def hostile_tags(chance: random.Random, count: int) -> list[tuple[bytes, bytes]]:
    records = []
    for _ in range(count):
        key, value = chance.choice([*TAGGED.values()])
        tags = chance.choice([0, 1, 1, 2, 2, 3, 0xFFFFFFFF])
        value += uvarint(tags)
        for _ in range(tags % 0xFFFFFFFF):
            content = chance.choice(TAG_CONTENTS)
            tag, size = chance.choice([0, 0, 0, 1, 1, 2, 9, 0xFFFFFFFF]), len(content)
            value += uvarint(tag) + uvarint(chance.choice([size] * 8 + [0, size + 1, 0xFFFFFFFF])) + content
        records.append((key, value + chance.choice([b""] * 6 + [b"\x00"])))
    return records


def pairs(rows: list[Row]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((row["topic"], tuple(row["partitions"])) for row in rows)


def plain(ours: Any) -> tuple[Any, ...]:
    return ours.topics, ours.user_data, ours.owned, ours.generation, ours.rack


def wanted(expected: Row) -> tuple[Any, ...]:
    data = expected["userData"]
    return (
        tuple(expected["topics"]),
        None if data is None else b64decode(data),
        pairs(expected.get("ownedPartitions", [])),
        expected.get("generationId", -1),
        expected.get("rackId"),
    )
