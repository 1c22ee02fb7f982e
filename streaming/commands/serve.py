"""`serve`: API, page, metrics and notifications."""

import sys
from pathlib import Path

import click


@click.command("serve")
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="monitor.toml. Without it, all defaults.",
)
def serve_command(config_path: Path | None) -> None:
    """Serve the page, the API and the metrics from the database that `run` writes, and send the alerts."""
    from streaming import logs
    from streaming.commands.settings import WrongConfiguration, settings_of
    from streaming.config.settings import ConfigError
    from streaming.serve.needs import check_needs
    from streaming.serve.server import AddressError, bind, serve
    from streaming.store import Store, StoreError

    settings = settings_of(config_path)
    try:
        check_needs(settings)  # before the threads start, for a supervisor that starts it again and again
        listener = bind(settings.serve.host, settings.serve.port)
        store = Store.open(settings.store.connection_url())
    except ConfigError as error:
        raise WrongConfiguration(str(error)) from None
    except (AddressError, StoreError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    click.echo(settings.effective(), err=True)
    logs.configure()
    try:
        serve(settings, store, listener, config_path)
    finally:
        store.close()
