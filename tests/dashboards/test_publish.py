"""`dashboards publish`: brings a Grafana to what the code says, once, and says in one line why it cannot."""

import contextlib
import re
import shutil
import socket
import subprocess

import pytest
from click.testing import CliRunner

pytest.importorskip("grafana_api")

from dashboards import files, publish
from streaming.commands.dashboards import PASSWORD_VARIABLE, TOKEN_VARIABLE, dashboards_command
from tests.dashboards.grafana_peer import PASSWORD, TOKEN, grafana

BOARDS = files.dashboards()
FLEET = "group-monitor-fleet"
GROUP = "group-monitor-group"
INCIDENT = {
    "incident_id": "abc",
    "cluster": "prod",
    "group": "orders",
    "rule": "session-expired",
    "summary": "<b>m-1</b> missed its session timeout",
    "opened_ms": 1_790_000_000_000,
    "closed_ms": None,
}


@pytest.fixture(params=[False, True], ids=["Editor", "Admin"])
def peer(request):
    with grafana(admin=request.param) as running:
        yield running


def run(peer, *arguments, status=0, **environment):
    """The command's output; secrets are never in it."""
    environment = {TOKEN_VARIABLE: TOKEN, PASSWORD_VARIABLE: None} | environment
    result = CliRunner().invoke(dashboards_command, ["publish", "--url", peer.url, *arguments], env=environment)
    assert result.exit_code == status, result.output
    assert TOKEN not in result.output
    assert PASSWORD not in result.output
    return result.output


def refused(peer, *arguments, **environment):
    """The one line that says why, below what was done before it."""
    *done, why = run(peer, *arguments, status=1, **environment).splitlines()
    assert all(line.startswith(("folder ", "dashboard ")) for line in done)
    assert why.startswith("dashboards publish: ")
    return why


def test_a_fresh_grafana_gets_a_folder_and_every_dashboard(peer):
    output = run(peer)
    assert peer.folders == {"group-monitor": "Group monitor"}
    assert peer.dashboards.keys() == BOARDS.keys()
    assert set(peer.folder_of.values()) == {"group-monitor"}
    assert output.count(": created") == 1 + len(BOARDS)
    assert peer.dashboards[FLEET]["panels"][1]["title"] == BOARDS[FLEET]["panels"][1]["title"]


def test_a_second_time_nothing_is_written(peer):
    run(peer)
    peer.writes.clear()
    output = run(peer)
    assert peer.writes == []
    assert output.count(": unchanged") == 1 + len(BOARDS)


def test_a_dry_run_says_what_would_change_and_changes_nothing(peer):
    assert "would be created" in run(peer, "--dry-run")
    run(peer)
    peer.dashboards[FLEET]["title"] = "mine"
    peer.writes.clear()
    output = run(peer, "--dry-run")
    assert "dashboard Consumer groups: fleet: would be updated\n  title: 'mine' -> 'Consumer groups: fleet'\n" in output
    assert peer.writes == []
    assert peer.dashboards[FLEET]["title"] == "mine"


def test_what_somebody_changed_is_put_right_as_the_next_version(peer):
    run(peer)
    peer.dashboards[FLEET]["panels"].pop()
    version = peer.dashboards[FLEET]["version"]
    assert "dashboard Consumer groups: fleet: updated\n  panels:" in run(peer)
    assert peer.dashboards[FLEET]["version"] == version + 1
    assert len(peer.dashboards[FLEET]["panels"]) == len(BOARDS[FLEET]["panels"])


def test_dashboards_link_to_where_people_find_serve(peer):
    run(peer, "--monitor", "https://monitor.example")
    (address,) = (each for each in peer.dashboards[FLEET]["templating"]["list"] if each["name"] == "monitor")
    assert address["query"] == address["current"]["value"] == "https://monitor.example"
    peer.writes.clear()
    run(peer, "--monitor", "https://monitor.example")
    assert peer.writes == []


def test_a_dashboard_in_another_folder_is_moved(peer):
    run(peer)
    assert "folder: 'group-monitor' -> 'group-monitor-" in run(peer, "--folder", "Kafka")
    (moved_to,) = set(peer.folder_of.values())
    assert peer.folders[moved_to] == "Kafka"


def test_a_folder_that_people_made_is_found_by_its_title(peer):
    peer.folders["cdr8x1w"] = "Kafka"
    assert "folder Kafka: unchanged" in run(peer, "--folder", "Kafka")
    assert peer.folders == {"cdr8x1w": "Kafka"}
    assert set(peer.folder_of.values()) == {"cdr8x1w"}


def test_a_folder_of_ours_that_people_renamed_is_still_ours(peer):
    run(peer)
    peer.folders["group-monitor"] = "Consumers"
    assert "folder Group monitor: unchanged" in run(peer)
    assert peer.folders == {"group-monitor": "Consumers"}


def test_a_folder_of_ours_that_people_put_into_another_is_found(peer):
    peer.nested["group-monitor"] = "Group monitor"
    assert "folder Group monitor: unchanged" in run(peer)
    assert set(peer.folder_of.values()) == {"group-monitor"}


def test_every_title_of_a_folder_has_a_uid_of_its_own(peer):
    titles = ["監視", "Team A", "team_a", "x" * 200]
    for title in titles:
        run(peer, "--folder", title)
    assert list(peer.folders.values()) == titles
    assert all(re.fullmatch(r"[a-z0-9-]{1,40}", uid) for uid in peer.folders)


def test_the_data_source_is_chosen_by_name_or_the_first_prometheus(peer):
    def chosen():
        variables = {v["name"]: v for v in peer.dashboards[FLEET]["templating"]["list"]}
        return variables["datasource"]["current"]["value"]

    run(peer)
    assert chosen() == "p-main"
    run(peer, "--datasource", "Old")
    assert chosen() == "p-old"
    assert "no Prometheus data source called Loki" in refused(peer, "--datasource", "Loki")


def test_user_and_password_do_as_well_as_a_token(peer, tmp_path):
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n")
    run(peer, "--user", "admin", "--password-file", str(secret), **{TOKEN_VARIABLE: None})
    run(peer, "--user", "admin", **{TOKEN_VARIABLE: None, PASSWORD_VARIABLE: PASSWORD})
    assert "--token-file" in run(peer, status=2, **{TOKEN_VARIABLE: None})


def test_a_grafana_below_a_path_is_found():
    with grafana(prefix="/grafana") as peer:
        run(peer)
        assert peer.dashboards.keys() == BOARDS.keys()


def test_https_is_verified_and_a_private_authority_can_be_named(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not on PATH")
    pem = tmp_path / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=grafana -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*command.split(), "-keyout", pem, "-out", tmp_path / "ca.pem"], check=True, capture_output=True)
    pem.write_text(pem.read_text() + (tmp_path / "ca.pem").read_text())
    with grafana(certificate=pem) as peer:
        assert "its certificate is not accepted: self-signed certificate" in refused(peer)
        run(peer, "--ca-file", str(tmp_path / "ca.pem"))
        assert peer.dashboards.keys() == BOARDS.keys()


@pytest.mark.parametrize(
    ("path", "status", "body", "words"),
    [
        (
            "/datasources",
            403,
            {"title": "Access denied", "message": "Permissions needed: datasources:read", "accessErrorId": "ACE0"},
            "403: the account may not do this",
        ),
        (
            "/dashboards/db",
            412,
            {"status": "name-exists", "message": "A dashboard with the same name in the folder already exists"},
            "412: somebody has changed it meanwhile, or another one has its title",
        ),
        (
            "/dashboards/db",
            412,
            {"status": "plugin-dashboard", "message": "The dashboard belongs to plugin X."},
            "plugin X",
        ),
        ("/dashboards/db", 500, {"message": "Failed to save dashboard", "traceID": ""}, "500: try again later"),
        ("/folders", 500, {"message": "Folder API error", "traceID": ""}, "500: try again later"),
        ("/datasources", 502, "<html>Bad gateway</html>", "502: try again later"),
        ("/datasources", 503, "the message is that it is starting", "not what it should be"),
        ("/health", 200, "<html>Welcome</html>", "not from Grafana's API"),
        ("/datasources", 200, {"message": "hello"}, "not what it should be"),
    ],
)
def test_an_error_of_grafana_is_one_line_that_says_what_to_do(peer, path, status, body, words):
    peer.answers[path] = (status, body)
    assert words in refused(peer)


def test_a_provisioned_dashboard_is_left_to_its_files(peer):
    run(peer)
    peer.provisioned = True
    peer.dashboards[FLEET]["title"] = "mine"
    assert "400: 'Cannot save provisioned dashboard'" in refused(peer)


def test_wrong_credentials_are_refused_without_showing_them(peer):
    assert "401: it refuses the token" in refused(peer, **{TOKEN_VARIABLE: "glsa_wrong"})
    assert "glsa_wrong" not in repr(publish.Login(token="glsa_wrong"))


def test_whoever_saves_in_between_loses_nothing(peer, monkeypatch):
    run(peer)
    peer.dashboards[FLEET]["title"] = "mine"
    read = peer.answer

    def saved_in_between(method, path, query, body):
        if path == "/dashboards/db":
            peer.dashboards[FLEET]["version"] += 1
        return read(method, path, query, body)

    monkeypatch.setattr(peer, "answer", saved_in_between)
    assert "412" in refused(peer)
    assert peer.dashboards[FLEET]["title"] == "mine"


@pytest.mark.parametrize(("version", "known"), [("9.5.21", False), ("10.0.0", True), ("13.3.0-pre", True), ("", True)])
def test_a_grafana_too_old_for_the_dashboards_is_named(version, known):
    with grafana(version=version) as peer:
        if known:
            run(peer)
        else:
            assert "this is Grafana 9.5.21" in refused(peer)


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("http://grafana.example:3000", 2, "use https, or --plain-http"),
        ("https://admin:hunter3@grafana.example", 2, "without user and password in it"),
        ("https://:hunter3@grafana.example", 2, "without user and password in it"),
        ("https://[::1", 2, "https://host"),
        ("https://grafana.example:30x0", 2, "https://host"),
        ("grafana.example", 2, "https://host"),
        ("http://127.0.0.1:9", 1, "asking http://127.0.0.1:9 for its version: Grafana cannot be reached: nothing"),
        ("https://127.0.0.1:9", 1, "nothing listens on this port"),
        ("https://no-such-host.invalid", 1, "the host name does not resolve"),
    ],
)
def test_an_address_that_will_not_do_is_said_so(url, code, words):
    result = CliRunner().invoke(dashboards_command, ["publish", "--url", url], env={TOKEN_VARIABLE: TOKEN})
    assert result.exit_code == code
    assert words in " ".join(result.output.split())
    assert "hunter3" not in result.output


@contextlib.contextmanager
def silent_server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_grafana_that_stays_silent_is_named_with_its_address(monkeypatch):
    monkeypatch.setattr(publish, "TIMEOUT_S", 0.3)
    with silent_server() as address:
        result = CliRunner().invoke(
            dashboards_command, ["publish", "--url", f"http://{address}"], env={TOKEN_VARIABLE: TOKEN}
        )
    assert result.exit_code == 1
    assert f"asking http://{address} for its version: Grafana cannot be reached: no answer in time" in result.output


def test_a_server_without_tls_is_told_from_one_that_is_away(peer):
    with pytest.raises(publish.PublishError, match="TLS fails"):
        publish.connect(peer.url.replace("http:", "https:"), publish.Login(token=TOKEN))


def test_a_monitor_that_gives_no_incidents_is_named_without_its_password(peer):
    with pytest.raises(publish.PublishError, match=r"the monitor at http://me:\*+@127\.0\.0\.1:9 .*nothing listens"):
        publish.incidents_of("http://me:hunter3@127.0.0.1:9", None)
    with pytest.raises(publish.PublishError, match=r"it answers 40|is not a monitor's"):
        publish.incidents_of(peer.url, None)


@pytest.mark.parametrize("spoil", [{"opened_ms": "now"}, {"opened_ms": None}, {"summary": ...}], ids=str)
def test_incidents_of_somebody_else_are_no_monitors(peer, spoil):
    spoiled = {key: value for key, value in {**INCIDENT, **spoil}.items() if value is not ...}
    peer.incidents.append(spoiled)
    with pytest.raises(publish.PublishError, match="is not a monitor's"):
        publish.incidents_of(f"{peer.url}/api", TOKEN)


def test_a_monitor_with_a_token_gets_it_or_it_is_said_how(peer):
    peer.incidents.append(INCIDENT)
    monitor = f"{peer.url}/api"
    assert "it answers 401; set GROUP_MONITOR_SERVE_TOKEN" in refused(peer, "--incidents", monitor)
    run(peer, "--incidents", monitor, GROUP_MONITOR_SERVE_TOKEN=TOKEN)
    assert len(peer.annotations) == 1


def test_an_incident_becomes_one_annotation_that_gets_its_end(peer):
    def published(*incidents, dry_run=False):
        connected = publish.connect(peer.url, publish.Login(token=TOKEN))
        return [change.action for change in publish.publish_incidents(connected, incidents, dry_run=dry_run)]

    other = {**INCIDENT, "incident_id": "def", "opened_ms": INCIDENT["opened_ms"] + 5_000}
    assert published(INCIDENT, dry_run=True) == ["created"]
    assert peer.annotations == []
    assert published(INCIDENT) == ["created"]
    assert published(INCIDENT, other) == ["unchanged", "created"]
    closed = {**INCIDENT, "closed_ms": INCIDENT["opened_ms"] + 60_000}
    assert published(closed, other) == ["updated", "unchanged"]
    assert published(closed, other) == ["unchanged", "unchanged"]
    first, _ = peer.annotations
    assert (first["time"], first["timeEnd"]) == (closed["opened_ms"], closed["closed_ms"])
    assert {"group-monitor", "cluster:prod", "group:orders", "incident:abc"} <= set(first["tags"])
    assert "<b>" not in first["text"]


@pytest.mark.parametrize("group", ["a:b:c", " spaces ", "x" * 1000, "o'brien (eu)!*", "\u4e16" * 300])
def test_no_name_of_a_group_keeps_incidents_from_being_annotated(peer, group):
    strange = {**INCIDENT, "group": group}
    for expected in ("created", "unchanged"):
        connected = publish.connect(peer.url, publish.Login(token=TOKEN))
        assert [change.action for change in publish.publish_incidents(connected, [strange])] == [expected]


def test_the_groups_dashboard_asks_for_the_tags_that_were_published(peer):
    """`${group:percentencode}` is encodeURIComponent, and the five characters it leaves."""
    group = "a:b'c (d)!*/e~f"
    list(
        publish.publish_incidents(publish.connect(peer.url, publish.Login(token=TOKEN)), [{**INCIDENT, "group": group}])
    )
    (asked,) = (a["target"]["tags"] for a in BOARDS[GROUP]["annotations"]["list"] if "tags" in a.get("target", {}))
    encoded = {"${cluster:percentencode}": "prod", "${group:percentencode}": "a%3Ab%27c%20%28d%29%21%2A%2Fe~f"}
    for variable, value in encoded.items():
        asked = [tag.replace(variable, value) for tag in asked]
    assert set(asked) <= set(peer.annotations[0]["tags"])
