"""`monitor.toml`: what is accepted, what is refused with which words, and that secrets stay secret."""

import json
import os
from pathlib import Path

import pytest

from coordinator_model.thresholds import Thresholds
from streaming.config.kafka import read_secret
from streaming.config.settings import SECRET_KEYS, TABLES, ConfigError, Settings, load
from streaming.config.text import MASK, mask_url

RECEIVERS = ("alertmanager", "pagerduty", "webhook", "log")

FULL = """
cluster = "prod"

[kafka]
bootstrap_servers = "a:9093, b:9093"
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "monitor"

[run]
operator_key = "group"
data_folder = "/var/lib/monitor"

[store]
url = "postgresql+psycopg://monitor@db/groups"

[thresholds]
grace_ms = 700

[[groups]]
pattern = "billing-.*"
mode = "notify"
runbook_url = "https://runbooks/billing"
thresholds = { page_after_ms = 30_000 }
[groups.labels]
team = "billing"

[[groups]]
pattern = "billing-old"
mode = "off"

[[groups]]
pattern = "test/.*"
mode = "record"

[[notify]]
kind = "alertmanager"
urls = ["http://am:9093"]

[[notify]]
kind = "log"
"""


@pytest.fixture
def write(tmp_path: Path):
    def _write(text: str) -> Path:
        path = tmp_path / "monitor.toml"
        path.write_text(text)
        return path

    return _write


@pytest.fixture
def full(write, monkeypatch) -> Settings:
    monkeypatch.setenv("GROUP_MONITOR_KAFKA_SASL_PASSWORD", 'pa"ss\\w')
    monkeypatch.setenv("GROUP_MONITOR_STORE_PASSWORD", "p@ss/word")
    return load(write(FULL))


def test_an_empty_file_is_all_defaults(write):
    assert load(write("")) == Settings()


def test_the_first_matching_block_is_the_policy_of_a_group(full):
    policy = full.policy_for("billing-old")
    assert (policy.mode, policy.labels) == ("notify", {"team": "billing"})
    assert policy.runbook_url == "https://runbooks/billing"
    assert policy.thresholds == Thresholds(grace_ms=700, page_after_ms=30_000)


def test_a_pattern_must_match_the_whole_group_id(full):
    assert full.policy_for("my-billing-app").labels == {}
    assert full.policy_for("test/a b").mode == "record"


def test_what_no_block_matches_and_broker_findings_notify_with_the_defaults(full):
    assert full.policy_for("other").thresholds == Thresholds(grace_ms=700)
    everything_off = full.model_copy(update={"groups": (full.groups[1].model_copy(update={"pattern": ".*"}),)})
    assert everything_off.policy_for("x").mode == "off"
    assert everything_off.policy_for("").mode == "notify"


def test_group_thresholds_keep_the_order_of_the_blocks(full):
    assert full.group_thresholds().patterns == ("billing-.*", "billing-old", "test/.*")


def test_spark_gets_java_properties_with_an_escaped_password(full):
    assert full.kafka.spark_options() == {
        "kafka.bootstrap.servers": "a:9093, b:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="monitor" password="pa\\"ss\\\\w";',
    }


def test_kafka_python_gets_its_own_names(full):
    assert full.kafka.python_client() == {
        "bootstrap_servers": ["a:9093", "b:9093"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "monitor",
        "sasl_plain_password": 'pa"ss\\w',
    }


def test_librdkafka_gets_its_own_names(full):
    assert full.kafka.librdkafka_client() == {
        "bootstrap.servers": "a:9093, b:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "monitor",
        "sasl.password": 'pa"ss\\w',
    }


def test_client_certificates_reach_all_clients(write, tmp_path):
    for name in ("ca", "cert", "key"):
        (tmp_path / f"{name}.pem").write_text(f"-----{name}-----\n")
    (tmp_path / "secret").write_text("hush\n")
    kafka = load(
        write(f"""
[kafka]
security_protocol = "SSL"
ssl_cafile = "{tmp_path}/ca.pem"
ssl_certfile = "{tmp_path}/cert.pem"
ssl_keyfile = "{tmp_path}/key.pem"
ssl_key_password_file = "{tmp_path}/secret"
""")
    ).kafka
    options = kafka.spark_options()
    assert options["kafka.ssl.truststore.location"] == f"{tmp_path}/ca.pem"
    assert options["kafka.ssl.keystore.key"] == "-----key-----\n"
    assert options["kafka.ssl.key.password"] == "hush"
    assert kafka.python_client()["ssl_password"] == "hush"
    assert kafka.python_client()["ssl_certfile"] == f"{tmp_path}/cert.pem"
    ours = kafka.librdkafka_client()
    assert [ours[f"ssl.{name}.location"] for name in ("ca", "certificate", "key")] == [
        f"{tmp_path}/{name}.pem" for name in ("ca", "cert", "key")
    ]
    assert ours["ssl.key.password"] == "hush"


def test_the_store_password_is_quoted_into_the_url(full):
    assert full.store.connection_url() == "postgresql+psycopg://monitor:p%40ss%2Fword@db/groups"


def test_secrets_are_printed_nowhere(full, write):
    shown = full.effective() + repr(full) + str(full) + repr(full.model_dump())
    for secret in ('pa"ss', "p@ss", "p%40ss"):
        assert secret not in shown
    assert 'sasl_password = "**********"' in full.effective()


def test_the_effective_configuration_is_toml_that_says_everything(full):
    import tomllib

    again = tomllib.loads(full.effective())
    assert again["run"]["operator_key"] == "group"
    assert again["groups"][0]["labels"] == {"team": "billing"}
    assert again["notify"][0]["urls"] == ["http://am:9093"]


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path):
    (tmp_path / "monitor.toml").write_bytes(b'\xef\xbb\xbfcluster = "prod"')
    assert load(tmp_path / "monitor.toml").cluster == "prod"
    (tmp_path / "secret").write_bytes(b"\xef\xbb\xbfhunter2\r\n")
    assert read_secret(tmp_path / "secret") == "hunter2"


def test_a_number_of_very_many_digits_is_a_problem_of_the_file(write):
    with pytest.raises(ConfigError, match="a number that cannot be read"):
        load(write("[serve]\nport = 0x" + "f" * 5_000))


@pytest.mark.parametrize("variable", ["CLUSTER", "SERVE__PORT", "KAFKA_SASL_PASSWORD"])
def test_a_variable_that_is_no_text_is_named(write, monkeypatch, variable):
    monkeypatch.setenv(f"GROUP_MONITOR_{variable}", os.fsdecode(b"12345678\xff"))
    with pytest.raises(ConfigError, match=f"GROUP_MONITOR_{variable}: its value is not UTF-8") as caught:
        load(write(""))
    assert "12345678" not in str(caught.value)


@pytest.mark.parametrize("variable", ["JARS", "GRAFANA_PASSWORD", "SERVE"])
def test_a_variable_that_is_no_setting_is_no_problem(write, monkeypatch, variable):
    monkeypatch.setenv(f"GROUP_MONITOR_{variable}", os.fsdecode(b"12345678\xff"))
    load(write(""))


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 5_000, "{a=" * 5_000])
def test_a_variable_that_no_parser_reads_is_a_problem_of_its_own(write, monkeypatch, value):
    monkeypatch.setenv("GROUP_MONITOR_SERVE__PORT", value)
    with pytest.raises(ConfigError, match=r"GROUP_MONITOR_SERVE__PORT: .*a whole number is needed"):
        load(write(""))


def test_a_secret_file_that_is_no_text_is_named(write, tmp_path):
    (tmp_path / "secret").write_bytes(b"12345678\xff")
    with pytest.raises(ConfigError, match="secret is not UTF-8 text") as caught:
        load(write(f'[store]\npassword_file = "{tmp_path}/secret"'))
    assert "0xff" not in str(caught.value)


@pytest.mark.parametrize("before", ["# \u2028", "# \x85"])
def test_the_line_of_a_problem_is_that_of_the_file(write, before):
    text = f"{before}\n[serve]\nport = -1"
    with pytest.raises(ConfigError, match=f":{len(text.split(chr(10)))}: serve.port"):
        load(write(text))


def test_quotes_in_a_comment_hide_no_problem(write):
    with pytest.raises(ConfigError, match=r"serve\.port"):
        load(write("# '''\n[run]\nmaster = '''\n\"\\x\" = 1\n'''\n[serve]\nport = -1"))


def test_credentials_in_a_url_are_masked():
    assert mask_url("https://u:secret@h:1/p?token=abc&x=1") == "https://u:********@h:1/p?token=********&x=********"
    assert mask_url("sqlite:////srv/monitor.db") == "sqlite:////srv/monitor.db"
    masked = load_text = Settings.model_validate_json(
        json.dumps({"notify": [{"kind": "alertmanager", "urls": ["http://u:secret@am:9093"]}]})
    ).effective()
    assert "secret" not in masked
    assert load_text.count("u:********@am:9093") == 1


@pytest.mark.parametrize(
    "url", ["p://u:a/12345678@h/d", "p://u:a?12345678@h", "p://u:a#12345678@h", "p://u:a\t12345678@h"]
)
def test_a_password_that_is_not_percent_encoded_is_masked(url):
    assert mask_url(url).startswith("p://u:********@h")


@pytest.mark.parametrize("scheme", ["http", "https", "postgresql", "postgresql+psycopg"])
@pytest.mark.parametrize(
    ("login", "shown"),
    [("u:12345678", "u:"), ("u:12345678@12345678", "u:"), (":12345678", ":"), ("12345678", "")],
)
def test_no_login_is_printed(scheme, login, shown):
    assert mask_url(f"{scheme}://{login}@h:1/d?to=a@b") == f"{scheme}://{shown}{MASK}@h:1/d?to={MASK}"


@pytest.mark.parametrize("mark", "/?#")
def test_a_password_of_a_receiver_that_is_not_percent_encoded_is_masked(mark):
    assert mask_url(f"https://u:a{mark}12345678@h/d") == f"https://u:{MASK}@h/d"


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("sqlite:////data/a@b.db", "sqlite:////data/a@b.db"),
        ("sqlite:///a:c@b.db?mode=ro", f"sqlite:///a:c@b.db?mode={MASK}"),
        ("postgresql://u:p@h/db?application_name=a@b", f"postgresql://u:{MASK}@h/db?application_name={MASK}"),
        ("postgresql://h/db?application_name=a@b", f"postgresql://h/db?application_name={MASK}"),
        ("http://h:8080/p?to=me@x.org", f"http://h:8080/p?to={MASK}"),
        ("http://[::1]:8080/@team", "http://[::1]:8080/@team"),
        ("http://[::1]/@team", "http://[::1]/@team"),
        ("https://hooks.example.com/@team/xyz", "https://hooks.example.com/@team/xyz"),
        ("https://hooks.example.com:443/@team:1/xyz", "https://hooks.example.com:443/@team:1/xyz"),
        ("https://u:p@h/@team/xyz", f"https://u:{MASK}@h/@team/xyz"),
    ],
)
def test_an_at_sign_behind_the_place_is_no_login(url, masked):
    assert mask_url(url) == masked


def test_a_query_without_names_is_masked():
    assert mask_url("https://h/hook?12345678") == "https://h/hook?********"
    assert mask_url("https://h/hook?") == "https://h/hook?"


def test_only_urls_are_masked_and_links_that_everybody_sees_are_not(write):
    lines = ('pattern = "https://[a-z]+"', 'runbook_url = "https://wiki/?page=7"')
    shown = load(write("\n".join(["[[groups]]", *lines]))).effective()
    assert set(lines) <= set(shown.splitlines())
    assert mask_url("u:secret@host") == MASK


@pytest.mark.parametrize(
    "text",
    [
        '[[notify]]\nkind = "webhook"\nurl = "ftp://u:12345678@h"',
        '[[notify]]\nkind = "alertmanager"\nurls = ["ftp://u:12345678@h"]',
        '[store]\nurl = "postgresql://u:12345678@[::1/db"',
        '[store]\nurl = "postgresql://u:a[12345678]@h/db"',
        '[store]\nurl = "postgresql://u:12345678\u2100@h/db"',
        *(f"[{table}]\n{key} = 12345678" for table, key in SECRET_KEYS),
    ],
)
def test_no_error_prints_a_secret(write, text):
    with pytest.raises(ConfigError) as caught:
        load(write(text))
    assert "12345678" not in str(caught.value)


REFUSED = {
    "unknown key at the top": ('clutser = "x"', 1, 'unknown key "clutser" in the top level; did you mean "cluster"?'),
    "unknown table": ("\n[kafak]\nx = 1", 2, 'did you mean "kafka"?'),
    "unknown key in a table": (
        '[kafka]\n# why\nbootstrap_server = "x"',
        3,
        'unknown key "bootstrap_server" in [kafka]; did you mean "bootstrap_servers"?',
    ),
    "a key of another table": ("[kafka]\ntrigger_ms = 1", 2, "it belongs to [run]"),
    "unknown threshold": ("[thresholds]\ngrace = 5", 2, 'did you mean "grace_ms"?'),
    "unknown threshold of a block": (
        '[[groups]]\npattern = "a"\n\n[[groups]]\npattern = "b"\nthresholds = { grace_sm = 1 }',
        6,
        'unknown key "grace_sm" in [thresholds]; did you mean "grace_ms"?',
    ),
    "unknown key of a receiver": (
        '[[notify]]\nkind = "log"\n[[notify]]\nkind = "alertmanager"\nurls = ["http://x"]\nurl = "http://x"',
        6,
        'unknown key "url" in [alertmanager]; did you mean "urls"?',
    ),
    "unknown receiver": (
        '[[notify]]\nmin_severity = "page"\nkind = "slack"',
        3,
        'notify.0.kind: "slack" is not a receiver; one of alertmanager, pagerduty, webhook, log',
    ),
    "a receiver without kind": ('[[notify]]\nurl = "http://x"', 1, "notify.0.kind: this key is needed"),
    "text for a number": ('[serve]\nport = "8844"', 2, 'serve.port: a whole number is needed, not "8844"'),
    "a number for text": ("cluster = 1", 1, "cluster: text in quotes is needed, not 1"),
    "true for a number": ("[run]\ntrigger_ms = true", 2, "run.trigger_ms: a whole number is needed, not true"),
    "a value for a table": ("kafka = 3", 1, "kafka"),
    "zero milliseconds": ("[thresholds]\ngrace_ms = 0", 2, "a number greater than 0 is needed, not 0"),
    "batches so rare that run looks dead": ("[run]\ntrigger_ms = 5001", 2, "at most 5000 is needed, not 5001"),
    "more intervals than commits are known": ("[thresholds]\nstall_intervals = 10", 2, "at most 9 is needed, not 10"),
    "more rebalances than are known": ("[thresholds]\nstorm_rebalances = 65", 2, "at most 64 is needed, not 65"),
    "longer than lags are known": ("[thresholds]\nlag_growing_ms = 600001", 2, "at most 600000 is needed"),
    "more than is known, of some groups": (
        '[[groups]]\npattern = "a"\nthresholds = { stall_intervals = 10 }',
        3,
        "at most 9 is needed, not 10",
    ),
    "longer than a thread can wait": ("[quality]\nevery_ms = 99999999999", 2, "at most 2147483647 is needed"),
    "a percentage for a ratio": ("[thresholds]\nat_risk_ratio = 66.0", 2, "a number of at most 1"),
    "a threshold too large": ("[thresholds]\ngrace_ms = 99999999999", 2, "at most 2147483647 is needed"),
    "more days than are counted": ("[store]\nretention_days = 2147483648", 2, "at most 2147483647 is needed"),
    "no name of a topic": ('[kafka]\ntelemetry_topics = ["lines "]', 2, "the name of a topic is needed"),
    "no name of a host": (f'[serve]\nhost = "{64 * "a"}"', 2, "an address or the name of a host is needed"),
    "a word outside the list": ('[run]\noperator_key = "member"', 2, 'one of shard, group is needed, not "member"'),
    "a bad pattern": ('[[groups]]\npattern = "a("', 2, "not a regular expression of RE2: missing ): a("),
    "a block without pattern": ('[[groups]]\nmode = "off"', 1, "groups.0.pattern: this key is needed"),
    "a bad label name": ('[[groups]]\npattern = "a"\nlabels = { "te-am" = "x" }', 3, "not a Prometheus label name"),
    "a label of ours": ('[[groups]]\npattern = "a"\nlabels = { severity = "x" }', 3, "set by the monitor itself"),
    "a secret in the file": (
        '[kafka]\nsasl_password = "hunter2"',
        2,
        "set GROUP_MONITOR_KAFKA_SASL_PASSWORD or sasl_password_file",
    ),
    "a missing secret file": (
        '[store]\npassword_file = "/nowhere/x"',
        2,
        "/nowhere/x cannot be read: No such file or directory",
    ),
    "sasl without a user": ('[kafka]\nsecurity_protocol = "SASL_SSL"', 1, "needs sasl_mechanism, sasl_username"),
    "a cluster without its secret": ('[run]\nmaster = "spark://m:7077"', 1, "needs the secret of the cluster"),
    "half a certificate": ('[kafka]\nssl_certfile = "x"', 1, "come together"),
    "no http": ('[[notify]]\nkind = "webhook"\nurl = "file:///x"', 3, "http:// or https://"),
    "a webhook without address": ('[[notify]]\nkind = "webhook"', 1, "either url or url_file"),
    "a host with a port": ('[serve]\nallowed_hosts = ["monitor:80"]', 2, "a plain host name is needed"),
    "no alertmanager": ('[[notify]]\nkind = "alertmanager"\nurls = []', 3, "notify.0.urls: it must not be empty"),
    "a data folder in a bucket": ('[run]\ndata_folder = "s3a://bucket/data"', 2, "s3a:// is not supported"),
    "a data folder as a file URI": ('[run]\ndata_folder = "file:///data"', 2, "file:// is not supported"),
    "a certificate in a bucket": ('[kafka]\nssl_cafile = "gs://bucket/ca.pem"', 2, "gs:// is not supported"),
    "a SQLite file in a bucket": ('[store]\nurl = "sqlite:///s3a://bucket/m.db"', 2, "s3a:// is not supported"),
    "SQLite in memory": ('[store]\nurl = "sqlite:///:memory:"', 2, "sqlite:///FILE or postgresql"),
    "SQLite without a file": ('[store]\nurl = "sqlite://"', 2, "sqlite:///FILE or postgresql"),
    "another database": ('[store]\nurl = "mysql+pymysql://u@h/d"', 2, "sqlite:///FILE or postgresql"),
    "broken toml": ('cluster = "x"\n[kafka\n', 2, "not TOML"),
    "a topic of two kinds": (
        '[kafka]\nclient_telemetry_topics = ["group-telemetry"]\n',
        1,
        "listed twice among offsets_topic, telemetry_topics and client_telemetry_topics: group-telemetry; list each",
    ),
    "a key given twice": ("[run]\ntrigger_ms = 1\ntrigger_ms = 2\n", 3, "not TOML"),
}


@pytest.mark.parametrize(("text", "line", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_file_is_refused_with_file_line_and_reason(write, text, line, words):
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert f"{path}:{line}: " in str(caught.value)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_problems_are_told_in_the_order_of_the_file(write):
    path = write(
        '[[notify]]\nkind = "slack"\n[serve]\nport = "x"\ntoken = "hunter2"\n[run]\ntrigger_sm = 1\n'
        '[[groups]]\nmode = "of"\n[kafka]\nsasl_password = "hunter2"\nbootstrap_servers = "a"\ncluster = 1'
    )
    with pytest.raises(ConfigError) as caught:
        load(path)
    lines = [int(line.removeprefix(f"{path}:").partition(":")[0]) for line in str(caught.value).splitlines()]
    assert lines == [2, 4, 5, 7, 8, 9, 11, 12, 13]


def _keys():
    """Every key that a file may have, as the text of a file that sets it to a value."""
    for table, model in TABLES.items():
        header = {"groups": '[[groups]]\npattern = "a"\n', "": ""}.get(table, f"[{table}]\n")
        if table in RECEIVERS:
            header = f'[[notify]]\nkind = "{table}"\n'
        for key in model.model_fields.keys() - {"kind", "pattern"}:
            yield header + f"{key} = "


@pytest.mark.parametrize("begin", sorted(_keys()))
def test_no_value_of_any_key_is_refused_in_words_about_python(write, begin):
    refusals = []
    for value in ("1", "-1", "nan", "true", '""', '"text"', "[1]", "{}", "2026-11-23"):
        try:
            load(write(f"{begin}{value}\n"))
        except ConfigError as error:
            refusals.append(str(error))
    assert refusals
    for words in ("Input", "should", "Value error", "valid", "pydantic", "JSON", "tuple", "dictionary"):
        assert not [refusal for refusal in refusals if words in refusal]


class TestEnvironment:
    def test_it_wins_over_the_file_and_over_the_defaults(self, write, monkeypatch):
        monkeypatch.setenv("GROUP_MONITOR_CLUSTER", "prod")
        monkeypatch.setenv("GROUP_MONITOR_KAFKA__BOOTSTRAP_SERVERS", "kafka-1:9092")
        monkeypatch.setenv("GROUP_MONITOR_RUN__TRIGGER_MS", "1000")
        monkeypatch.setenv("GROUP_MONITOR_RUN__DATA_FOLDER", "/srv/1")
        monkeypatch.setenv("GROUP_MONITOR_QUALITY__ENABLED", "false")
        monkeypatch.setenv("GROUP_MONITOR_THRESHOLDS__AT_RISK_RATIO", "0.5")
        settings = load(write('cluster = "test"\n[kafka]\nbootstrap_servers = "a:1"\n[run]\nshard_split = 2'))
        assert (settings.cluster, settings.kafka.bootstrap_servers) == ("prod", "kafka-1:9092")
        assert (settings.run.trigger_ms, settings.run.shard_split) == (1000, 2)
        assert settings.run.data_folder == Path("/srv/1")
        assert settings.quality.enabled is False
        assert settings.default_thresholds().at_risk_ratio == 0.5

    def test_a_text_that_looks_like_a_number_stays_a_text(self, monkeypatch):
        monkeypatch.setenv("GROUP_MONITOR_CLUSTER", "42")
        monkeypatch.setenv("GROUP_MONITOR_KAFKA__SASL_USERNAME", "true")
        settings = load(None)
        assert (settings.cluster, settings.kafka.sasl_username) == ("42", "true")

    def test_a_list_is_written_as_in_toml(self, monkeypatch):
        monkeypatch.setenv("GROUP_MONITOR_KAFKA__TELEMETRY_TOPICS", '["a", "b"]')
        assert load(None).kafka.telemetry_topics == ("a", "b")

    @pytest.mark.parametrize(
        ("variable", "value", "words"),
        [
            ("GROUP_MONITOR_RUN__TRIGGER_MS", "fast", 'run.trigger_ms: a whole number is needed, not "fast"'),
            ("GROUP_MONITOR_RUN__TRIGGER_SM", "1", "did you mean GROUP_MONITOR_RUN__TRIGGER_MS?"),
            ("GROUP_MONITOR_KAFKA__TELEMETRY_TOPICS", "a,b", "a list is needed"),
            ("GROUP_MONITOR_GROUPS__0__PATTERN", "x", "no key has this variable"),
        ],
    )
    def test_what_is_wrong_is_told_with_the_variable_s_name(self, monkeypatch, variable, value, words):
        monkeypatch.setenv(variable, value)
        with pytest.raises(ConfigError) as caught:
            load(None)
        assert str(caught.value).startswith(f"defaults: {variable}: ")
        assert words in str(caught.value)

    def test_other_variables_of_ours_and_of_kubernetes_are_no_keys(self, monkeypatch):
        for variable in ("GROUP_MONITOR_PORT", "GROUP_MONITOR_SERVICE_HOST", "GROUP_MONITOR_PORT_8844_TCP_ADDR"):
            monkeypatch.setenv(variable, "tcp://10.0.0.1:8844")
        assert load(None) == Settings()

    def test_a_secret_may_be_given_either_way_and_is_not_shown(self, monkeypatch):
        monkeypatch.setenv("GROUP_MONITOR_SERVE__TOKEN", "hunter2")
        settings = load(None)
        assert settings.serve.token.get_secret_value() == "hunter2"
        assert "hunter2" not in settings.effective()


SECRET_FILES = ("kafka.sasl_password", "kafka.ssl_key_password", "run.spark_secret", "store.password", "serve.token")


@pytest.mark.parametrize("content", ["", "\n", " \r\n", "\t"])
@pytest.mark.parametrize("secret", SECRET_FILES)
def test_an_empty_secret_file_is_an_error_and_no_secret(write, tmp_path, secret, content):
    (tmp_path / "secret").write_text(content)
    table, key = secret.split(".")
    path = write(f'[{table}]\n{key}_file = "{tmp_path}/secret"\n')
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}:2: [{table}] {key}_file: {tmp_path}/secret is empty"


@pytest.mark.parametrize("value", ["", " \n"])
@pytest.mark.parametrize("between", ["_", "__"])
@pytest.mark.parametrize("secret", SECRET_FILES)
def test_an_empty_secret_in_the_environment_is_an_error_and_no_secret(write, monkeypatch, secret, between, value):
    variable = f"GROUP_MONITOR_{secret.replace('.', between).upper()}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable}: it is empty"):
        load(write(""))


@pytest.mark.parametrize(
    "text",
    [
        '[[notify]]\nkind = "pagerduty"\nrouting_key_file = "{file}"',
        '[[notify]]\nkind = "pagerduty"\nrouting_key_env = "EMPTY"',
        '[[notify]]\nkind = "webhook"\nurl_file = "{file}"',
        '[serve]\nheartbeat_url_file = "{file}"',
    ],
)
def test_an_empty_secret_of_a_receiver_is_an_error(write, tmp_path, monkeypatch, text):
    from streaming.serve.notify.receivers import receivers_of

    monkeypatch.setenv("EMPTY", "\n")
    (tmp_path / "secret").write_text("\n")
    settings = load(write(text.format(file=tmp_path / "secret")))
    with pytest.raises(ConfigError, match="empty"):
        receivers_of(settings) or settings.serve.heartbeat_address()


@pytest.mark.parametrize("value", ["1" * 5_000, "[" * 100_000], ids=["digits", "depth"])
def test_a_file_that_no_reader_takes_is_one_clear_line(write, value):
    with pytest.raises(ConfigError, match=r"monitor\.toml: not TOML that can be read: "):
        load(write(f"[run]\ntrigger_ms = {value}\n"))


def test_every_mistake_is_named_at_once(write):
    with pytest.raises(ConfigError) as caught:
        load(write('clutser = "x"\n[serve]\nprot = 1\n'))
    assert len(str(caught.value).splitlines()) == 2


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read: No such file or directory$"):
        load(tmp_path / "nowhere.toml")


def test_keys_inside_long_strings_do_not_move_line_numbers(write):
    with pytest.raises(ConfigError, match=r"monitor\.toml:5: unknown key"):
        load(write('cluster = """\nserve = 1\n[run]\n"""\nnope = 1\n'))


class TestSecretFilesInTheEnvironment:
    @pytest.mark.parametrize(("table", "key"), SECRET_KEYS)
    def test_the_file_that_a_variable_names_is_read(self, write, monkeypatch, tmp_path, table, key):
        (tmp_path / "secret").write_text("12345678\n")
        monkeypatch.setenv(f"GROUP_MONITOR_{table}__{key}_FILE".upper(), str(tmp_path / "secret"))
        assert getattr(getattr(load(write("")), table), key).get_secret_value() == "12345678"

    def test_the_secret_itself_takes_precedence(self, write, monkeypatch, tmp_path):
        (tmp_path / "secret").write_text("from the file")
        monkeypatch.setenv("GROUP_MONITOR_SERVE__TOKEN_FILE", str(tmp_path / "secret"))
        for variable in ("GROUP_MONITOR_SERVE__TOKEN", "GROUP_MONITOR_SERVE_TOKEN"):
            monkeypatch.setenv(variable, variable)
            assert load(write("")).serve.token.get_secret_value() == variable

    def test_one_that_cannot_be_read_is_a_problem_of_the_variable(self, write, monkeypatch):
        monkeypatch.setenv("GROUP_MONITOR_SERVE__TOKEN_FILE", "/nowhere/token")
        with pytest.raises(ConfigError, match=r"GROUP_MONITOR_SERVE__TOKEN_FILE: .*/nowhere/token cannot be read"):
            load(write(""))
