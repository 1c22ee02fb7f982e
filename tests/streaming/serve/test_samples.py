"""Our samples are run: the configuration that Burrow ships panics, its template names a field that does not exist."""

import re
from pathlib import Path

import pytest

from streaming.config.settings import load
from streaming.serve.notify.receivers import receivers_of

ROOT = Path(__file__).parents[3]
SAMPLES = [
    (page, number, text)
    for page in ("README.md", "docs/alerts.md")
    for number, text in enumerate(re.findall(r"```toml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
]


def test_there_are_samples():
    assert {page for page, _, _ in SAMPLES} == {"README.md", "docs/alerts.md"}


@pytest.mark.parametrize(("page", "number", "text"), SAMPLES, ids=[f"{page} {number}" for page, number, _ in SAMPLES])
def test_every_sample_in_the_documentation_loads_and_makes_its_receivers(tmp_path, page, number, text):
    for path in set(re.findall(r'"(/run/secrets/[^"]*)"', text)):
        secret = tmp_path / Path(path).name
        secret.write_text("https://hook.example/secret\n")
        text = text.replace(path, str(secret))
    config = tmp_path / "monitor.toml"
    config.write_text(text)
    settings = load(config)
    assert len(receivers_of(settings)) == sum(len(getattr(block, "urls", [1])) for block in settings.notify) > 0
