"""The command `group-monitor`: one module per command, imported when the command is called."""

import difflib
import errno
import importlib
import io
import os
import sys
from importlib.metadata import PackageNotFoundError, version

import click
from click.shell_completion import CompletionItem

from streaming.extras import how_to_install

COMMANDS = {
    "audit": "Report the worst groups of any cluster, within a minute: read-only, no set-up.",
    "broker": "Run a real Kafka broker on this machine, to try things with.",
    "capture": "Record a cluster's records and telemetry into a file.",
    "dashboards": "Write Grafana dashboards and alert rules to files, or publish the dashboards.",
    "decode": "Decode raw records of __consumer_offsets into the JSON that Kafka itself prints.",
    "demo": "See it work on this machine: a real broker, real consumers, real faults.",
    "describe": "Show one group of a running monitor, or all groups.",
    "doctor": "Check what `run` and `serve` need, and say what to do about what is missing.",
    "incidents": "List the incidents of a running monitor.",
    "log4j2": "Print the log4j2 file that makes brokers ship what they log about groups.",
    "quality": "Check the stored data as a whole (great-expectations).",
    "quarantine": "List the rows that a running monitor could not read.",
    "replay": "Replay a capture through the same model, without Kafka and Spark.",
    "run": "Watch a cluster: read Kafka, write incidents to the database.",
    "serve": "Serve the page, API and metrics from the database, and send the alerts.",
    "watch": "Follow the groups of a running monitor in a full-screen table.",
}
"""Command -> one line of help; `streaming.commands.<name>` exports `<name>_command`."""


KEPT_PRIVATE = frozenset({"audit", "broker", "capture", "demo", "quality", "run", "serve"})
"""Commands whose files only the owner may read: databases, checkpoints and captures contain what clients sent, and logs
contain who the clients are.
"""


_OF_FILES = frozenset(
    {errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EISDIR, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS}
)
"""What is wrong with a file, and not with a command: a full disk, a missing right."""


def _version() -> str:
    try:
        return version("kafka-group-monitor")
    except PackageNotFoundError:
        return "from source"


def _drop_unwritable_output() -> None:
    """Drop what standard output does not take: Python would try again as it ends, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Commands(click.Group):
    """Loads a command's module only when it is called: `decode` needs neither Spark nor Kafka."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"streaming.commands.{cmd_name}")
        except ModuleNotFoundError as error:
            raise _missing(cmd_name, error) from error
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without importing its module."""
        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not (near := difflib.get_close_matches(args[0], COMMANDS, n=1)):
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:  # a command may import a package only when it runs
            raise _missing(ctx.invoked_subcommand or "", error) from error
        except OSError as error:
            if error.errno not in _OF_FILES:
                raise
            _drop_unwritable_output()
            named = f"{error.filename}: " if error.filename else ""  # a failed write names no file
            raise click.ClickException(f"{named}{error.strerror}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _missing(command: str, error: ModuleNotFoundError) -> Exception:
    if error.name and error.name.startswith(("streaming", "coordinator_model", "dashboards")):
        return error  # ours: a defect, not a package to install
    package = (error.name or "").split(".")[0]
    return click.ClickException(f"{command} needs the package {package}: {_extra(command)}")


def _extra(command: str) -> str:
    extras = {"run": "spark", "serve": "serve", "demo": "demo", "dashboards": "grafana", "quality": "quality"}
    extra = extras.get(command, "kafka")
    return how_to_install(extra)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(_version(), prog_name="group-monitor")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Monitor Kafka consumer groups: which member broke which timeout, when, and what that did to the group.

    `group-monitor demo` shows it on this machine. `group-monitor doctor --config monitor.toml` says what is missing to
    watch your own cluster.

    Shell completion, for ~/.bashrc (zsh_source and fish_source for the other shells):

    \b
      eval "$(_GROUP_MONITOR_COMPLETE=bash_source group-monitor)"
    """  # noqa: D301 - click's mark for a line that must not be wrapped
    if ctx.invoked_subcommand in KEPT_PRIVATE:
        os.umask(0o077)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # paths that are no UTF-8, and terminals that are not


if __name__ == "__main__":
    main()
