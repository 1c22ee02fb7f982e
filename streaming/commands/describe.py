"""`describe`: a group as it is now, or all groups."""

import click

from streaming.commands import remote
from streaming.commands.remote import Monitor, echo_json, instant
from streaming.terminal_text import shown


@click.command("describe")
@click.argument("group", required=False)
@click.option("--cluster", default=None, help="The cluster, if several have such a group.")
@click.option(
    "--limit", default=1_000, show_default=True, type=click.IntRange(1, 10_000), help="Show at most this many groups."
)
@remote.options
def describe_command(group: str | None, cluster: str | None, limit: int, url: str, *, as_json: bool) -> None:
    """Show a group: members, headroom (share of the session timeout left), assignment, lag, incidents, events.

    Without GROUP: all groups.
    """
    from streaming.commands import tables

    monitor, out = Monitor(url), tables.console()
    if group is None:
        groups = monitor.listing("/api/v1/groups", has="members", cluster=cluster, limit=limit)
        if as_json:
            groups.echo_json("groups")
        else:
            out.print(tables.groups_table(groups.title("groups"), groups.objects))
        return
    found = monitor.group(group, cluster)
    if as_json:
        echo_json(found)
        return
    out.print(
        f"{shown(found['group'])} in {shown(found['cluster'])}: {shown(found['type'])}, {shown(found['state'])} "
        f"({found['state_evidence']}), generation {found['generation']}, seen {instant(found['at_ms'])} UTC"
    )
    if problem := monitor.not_current(found["cluster"]):
        out.print(f"not current: {shown(problem)}", style="bold red", markup=False)
    out.print(tables.members_table(found))
    lag = monitor.partitions(group, found["cluster"])
    if lag["partitions"]:
        out.print(tables.partitions_table(lag))
    if found["incidents"]:
        out.print(tables.incidents_table("open incidents", found["incidents"]))
    if found["events"]:
        out.print("what happened last")
    for event in found["events"]:
        out.print(f"{instant(event['at_ms'])}  {shown(event['text'])}")
