"""`describe`, `watch`, `incidents`, `quarantine` against servers that are no monitor, or go away."""

import contextlib
import io
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from streaming.cli import main
from streaming.commands import watch
from streaming.commands.remote import TOKEN_VARIABLE, Listing, Monitor
from streaming.commands.watch import Look

CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n[{"
CUT_OFF_ERROR = b"HTTP/1.1 503 Later\r\nContent-Length: 1000\r\n\r\n{"
NOT_HTTP = b"SSH-2.0-OpenSSH_9.2\r\n"
EMPTY_LIST = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
READY = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"ready": true}'


@contextlib.contextmanager
def answering(*answers):
    """A server that sends each connection the next of these bytes; yields its port and what it was sent."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            for text in answers:
                connection, _ = server.accept()
                with connection:
                    asked.append(connection.recv(65_536).decode())
                    connection.sendall(text)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1], asked


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (CUT_OFF, "broke off; try again"),
        (CUT_OFF_ERROR, "the monitor answered 503"),
        (NOT_HTTP, "does not answer like a monitor"),
    ],
)
def test_a_broken_answer_is_one_clear_line(answer, words):
    with answering(answer) as (port, _):
        done = CliRunner().invoke(main, ["quarantine", "--url", f"http://127.0.0.1:{port}"])
    assert done.exit_code == 1
    assert done.output.startswith("Error: ")
    assert words in done.output


@pytest.mark.parametrize("value", ['{"status": "ok"}', "[1]", '[{"x": 1}]', "null", "NaN", "[" * 100_000])
@pytest.mark.parametrize("command", [["describe"], ["describe", "g"], ["incidents", "--json"], ["watch"]], ids=str)
def test_json_of_somebody_else_is_one_clear_line(command, value):
    with answering(f"HTTP/1.1 200 OK\r\nContent-Length: {len(value)}\r\n\r\n{value}".encode()) as (port, _):
        done = CliRunner().invoke(main, [*command, "--url", f"http://127.0.0.1:{port}"])
    assert done.exit_code == 1
    assert done.output.startswith("Error: ")
    assert "does not answer like a monitor" in done.output


@pytest.mark.parametrize("body", ['{"error": "\\u001b]0;mine\\u0007"}', '{"error": "x", "clusters": 7}', "[" * 100_000])
def test_an_error_of_somebody_else_steers_no_terminal(body):
    with answering(f"HTTP/1.1 409 No\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()) as (port, _):
        done = CliRunner().invoke(main, ["incidents", "--url", f"http://127.0.0.1:{port}"])
    assert done.exit_code == 1
    assert done.output.startswith("Error: ")
    assert done.output.rstrip().isprintable()


def test_an_error_instead_of_the_readiness_is_told():
    body = '{"error": "the database does not answer"}'
    failed = f"HTTP/1.1 503 Later\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    with answering(EMPTY_LIST, EMPTY_LIST, failed) as (port, _):
        done = CliRunner().invoke(main, ["watch", "--json", "--url", f"http://127.0.0.1:{port}"])
    assert done.exit_code == 1
    assert done.output == "Error: the database does not answer\n"


def test_a_token_is_sent_in_utf_8_and_one_with_a_line_break_is_named_as_the_problem(monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "tők")
    with answering(EMPTY_LIST) as (port, asked):
        Monitor(f"http://127.0.0.1:{port}").listing("/api/v1/incidents", "rule")
    assert "Authorization: Bearer tők" in asked[0]
    monkeypatch.setenv(TOKEN_VARIABLE, "hunter2\n")
    done = CliRunner().invoke(main, ["incidents", "--url", f"http://127.0.0.1:{port}"])
    assert f"{TOKEN_VARIABLE}: a token has no line breaks" in done.output
    assert "hunter2" not in done.output


@pytest.mark.parametrize("url", ["http://127.0.0.1:88x4", "http://[::1", "http://me:hunter2@127.0.0.1:8844"])
def test_an_address_that_cannot_be_used_is_wrong_usage(url):
    done = CliRunner().invoke(main, ["incidents", "--url", url])
    assert done.exit_code == 2
    assert "an http:// or https:// URL is needed" in done.output
    assert "hunter2" not in done.output


def test_the_token_is_not_sent_to_another_host(monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "hunter2")
    with answering(EMPTY_LIST) as (other, asked_there):
        away = f"HTTP/1.1 302 Found\r\nLocation: http://localhost:{other}/\r\nContent-Length: 0\r\n\r\n".encode()
        with answering(away) as (port, asked_here):
            assert Monitor(f"http://127.0.0.1:{port}").listing("/api/v1/incidents", "rule").objects == []
    assert "Authorization: Bearer hunter2" in asked_here[0]
    assert "hunter2" not in asked_there[0]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_watch_goes_on_after_a_look_that_failed(monkeypatch, options):
    monkeypatch.setattr(watch.time, "sleep", lambda _: None)
    with answering(EMPTY_LIST, EMPTY_LIST, READY, NOT_HTTP, EMPTY_LIST, EMPTY_LIST, READY) as (port, asked):
        url = f"http://127.0.0.1:{port}"
        done = CliRunner().invoke(main, ["watch", "--times", "3", *options, "--url", url])
    assert done.exit_code == 0, done.output
    assert len(asked) == 7
    assert ("does not answer like a monitor" in done.stderr) == bool(options)


def test_watch_says_what_is_wrong_above_what_it_saw_last(monkeypatch):
    seen = Look(0, Listing([], 0), Listing([], 0))
    answers = iter([seen, click.ClickException("away"), seen])

    def look():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(watch.time, "sleep", lambda _: None)
    looks = list(watch._looks(look, 1.0, 3))
    out = Console(file=io.StringIO(), width=100)
    out.print(watch._picture(looks[1], out))
    assert out.file.getvalue().startswith("not current: away\n")
    assert [each.problem for each in looks] == ["", "away", ""]
    assert json.dumps(looks[1].as_json()) == json.dumps(seen.as_json())


ENDED_DURING = """
import os, signal, sys
import rich.console, rich.live
from streaming.cli import main

def ended(real):
    def wrapped(*given, **named):
        result = real(*given, **named)
        if given[1:] != (False,):
            os.kill(os.getpid(), signal.SIGTERM)
        return result
    return wrapped

owner, name = {place}
setattr(owner, name, ended(getattr(owner, name)))
main(["watch", "--every", "0.2", "--url", sys.argv[1]])
"""
"""`watch`, which gets SIGTERM at the end of a function of rich, unless that gets the argument False."""


@pytest.mark.parametrize(
    "place",
    ["(rich.console.Console, 'set_alt_screen')", "(rich.live.Live, 'refresh')", "(rich.live.Live, 'update')"],
    ids=["taking the screen", "the first drawing", "a later drawing"],
)
def test_watch_gives_the_terminal_back_when_it_is_ended(place):
    ours, theirs = pty.openpty()
    with answering(*([EMPTY_LIST, EMPTY_LIST, READY] * 100)) as (port, _):
        command = [sys.executable, "-c", ENDED_DURING.format(place=place), f"http://127.0.0.1:{port}"]
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
        )
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while text := os.read(ours, 65_536):
                drawn += text
        assert process.wait() == 128 + signal.SIGTERM
    os.close(ours)
    assert drawn.endswith(b"\x1b[?25h\x1b[?1049l")


@pytest.mark.parametrize("command", ["describe", "watch", "incidents", "quarantine"])
def test_help_says_where_the_token_comes_from(command):
    assert TOKEN_VARIABLE in " ".join(CliRunner().invoke(main, [command, "--help"]).output.split())


@pytest.mark.parametrize("every", ["nan", "inf", "0.1", "1e300"])
def test_watch_wants_a_number_of_seconds(every):
    assert CliRunner().invoke(main, ["watch", "--every", every, "--url", "http://127.0.0.1:9"]).exit_code == 2
