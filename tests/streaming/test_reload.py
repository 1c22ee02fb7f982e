"""What of a changed configuration a running process can use."""

import pytest

from streaming.config.reload import RUN_FIXED, SERVE_FIXED, reread
from streaming.config.settings import ConfigError, load


@pytest.mark.parametrize("fixed", [RUN_FIXED, SERVE_FIXED], ids=["run", "serve"])
def test_a_changed_password_of_the_database_needs_a_restart(tmp_path, fixed):
    """Open connections would stay, and new ones would be refused, with a message about a file that is right."""
    password, file = tmp_path / "password", tmp_path / "monitor.toml"
    password.write_text("old")
    file.write_text(f"[store]\nurl = 'postgresql+psycopg://monitor@db/groups'\npassword_file = '{password}'\n")
    running = load(file)
    assert reread(file, running, fixed) == running
    password.write_text("new")
    with pytest.raises(ConfigError, match=r"store\.password changed: that needs a restart"):
        reread(file, running, fixed)
