"""The schema, step by step (Alembic): each file in `versions/` is one change and migrates a database to the next state.

A change to `tables` needs a new file here, made by hand or by Alembic's autogenerate; a test compares the two. A
released file is never edited.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from alembic.util.exc import CommandError
from sqlalchemy import Connection, inspect, text

_FOLDER = Path(__file__).parent


class UnknownSchemaError(Exception):
    """The database was made by a version of the program that this one does not know."""


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Migrate an empty or older database to a schema, by default the newest, in the caller's transaction.

    Raises `UnknownSchemaError` if it is newer than this program.
    """
    if revision_of(connection) == head():
        return
    config = _config()
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except (CommandError, ResolutionError) as error:
        raise UnknownSchemaError(f"schema {revision_of(connection)}: {error}") from None


def head() -> str:
    """Return the revision of the newest schema."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def revision_of(connection: Connection) -> str | None:
    """Return the revision of a database's schema; None if it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
