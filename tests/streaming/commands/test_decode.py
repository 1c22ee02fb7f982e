"""The `decode` command: one answer a line, in order, at once, whatever the lines are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming.commands.decode import decode_command

REPOSITORY = Path(__file__).parents[3]
FIXTURE = REPOSITORY / "tests/fixtures/consumer_offsets/kafka-4.3.1.jsonl"
COMMAND = [sys.executable, "-c", "from streaming.commands.decode import decode_command; decode_command()"]


def decode_lines(text):
    result = CliRunner().invoke(decode_command, input=text)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_prints_what_kafkas_own_converters_print():
    rows = [json.loads(line) for line in FIXTURE.read_text(encoding="ascii").splitlines()]
    for row, answer in zip(rows, decode_lines(FIXTURE.read_bytes()), strict=True):
        answer.pop("error", None)
        assert answer == row["expected"]


def test_bytes_are_base64_and_a_tombstone_has_a_null_value():
    group = "0002000167"
    value = "00030000000000000000ffff0000018bcfe56800000000010000ffff0000000000000001000000010000000200010000000100"
    decoded, tombstone = decode_lines(f'{{"key":"{group}","value":"{value}"}}\n{{"key":"{group}","value":null}}\n')
    assert (
        decoded["value"]["data"]["members"][0] | {"subscription": "AAE=", "assignment": "AA=="}
        == (decoded["value"]["data"]["members"][0])
    )
    assert tombstone == {"outcome": "tombstone", "key": {"type": 2, "data": {"group": "g"}}, "value": None}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"key":"0002000167"}',
        b'{"key":7,"value":null}',
        b'{"key":"0002","value":["00"]}',
        b'{"key":"000","value":null}',
        b'{"key":"00 02","value":null}',
        b'{"key":"zz","value":null}',
        '{"key":"é","value":null}'.encode(),
        b'{"key":"\\ud800","value":null}',
        b'{"key":' + b"[" * 100_000,
        b'{"key":' + b"1" * 10_000 + b',"value":null}',
    ],
)
def test_a_line_that_is_not_a_record_is_malformed_and_its_neighbours_are_not(line):
    good = b'{"key":"0002000167","value":null}'
    before, answer, after = decode_lines(b"\n".join([good, line, good]))
    assert (answer["outcome"], answer["key"], answer["value"]) == ("malformed", None, None)
    assert answer["error"].startswith("line: ")
    assert before == after
    assert before["outcome"] == "tombstone"


def test_no_input_is_no_output():
    assert decode_lines("") == []


def test_a_line_is_answered_before_the_next_one_is_there():
    with subprocess.Popen(COMMAND, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for _ in range(3):
            process.stdin.write(b'{"key":null,"value":null}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["outcome"] == "no-key"
        process.stdin.write(b'{"key":null,"va')
        process.stdin.flush()
        process.stdin.write(b'lue":null}')
        process.stdin.close()
        assert json.loads(process.stdout.read())["outcome"] == "no-key"


def test_a_reader_that_goes_away_is_no_error_message():
    lines = b'{"key":"0002000167","value":null}\n' * 20_000
    with subprocess.Popen(
        COMMAND, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        _, errors = process.communicate(lines)
    assert errors == b""
