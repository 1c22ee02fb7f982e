"""Which groups are shown again at the end of a batch, although their findings have not changed.

These are the groups that have changed, and each group once in ``view_refresh_ms``, staggered by the hash of its id. A
whole view takes a millisecond or two. If all groups have findings, as in an outage, a batch shows only some of the
groups that are due: otherwise a slow batch would make the next one even slower.
"""

import zlib

from coordinator_model.shard.group_judgement import GroupJudgement
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.heartbeat_update import forget_shown, refreshed, shown_plain

WHOLE_AT_ONCE = 40
"""How many groups that have not changed are shown whole in one batch of a shard, at most."""


def refresh_views(groups: Groups, judgement: GroupJudgement) -> None:
    """Show the groups that are due: by their heartbeats alone if nothing else came since, otherwise whole."""
    progress_ms, table = groups.clock.progress_ms, groups.heartbeat_table
    for group in groups.changed:
        forget_shown(group, table)
    due = [(group, True) for group in sorted(groups.changed)]
    due += [(group, False) for group in _in_turn(groups, progress_ms) if group not in groups.changed]
    by_heartbeats, whole = [], 0
    for group, has_changed in due:
        with judgement.isolated(group, progress_ms):
            if shown_plain(group, table) and not groups.clock.waiting:
                by_heartbeats.append(refreshed(group, table, progress_ms))
            elif has_changed or whole < WHOLE_AT_ONCE:
                whole += not has_changed
                judgement.refresh_view(group, progress_ms)
    groups.changed.clear()
    if by_heartbeats:
        groups.outputs.heartbeats(progress_ms, by_heartbeats)


def _in_turn(groups: Groups, progress_ms: int) -> list[str]:
    """Return the groups whose turn has come since the batch before, the most recent turn first."""
    viewed_ms, period_ms = groups.memory.viewed_ms, groups.settings.view_refresh_ms
    if progress_ms <= viewed_ms or not period_ms:
        return []
    groups.memory.viewed_ms, in_turn = progress_ms, []
    for group in groups.heartbeat_table.slots:
        shift_ms = zlib.crc32(group.encode()) % period_ms
        if (progress_ms - shift_ms) // period_ms > (viewed_ms - shift_ms) // period_ms:
            in_turn.append(((progress_ms - shift_ms) % period_ms, group))
    return [group for _, group in sorted(in_turn)]
