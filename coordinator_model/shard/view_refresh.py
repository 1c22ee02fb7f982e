"""Which groups are shown again at the end of a batch, though nothing was found of them.

Those that changed, and each once in ``view_refresh_ms``, staggered by the hash of its name.
"""

import zlib

from coordinator_model.shard.group_judgement import GroupJudgement
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.refresh import forget_shown, refreshed, shown_plain


def refresh_views(groups: Groups, judgement: GroupJudgement) -> None:
    """Show the groups that are due: whole, or by their heartbeats alone where nothing else came since."""
    progress_ms, table = groups.clock.progress_ms, groups.heartbeat_table
    for group in groups.changed:
        forget_shown(group, table)
    due = sorted(groups.changed | _in_turn(groups, progress_ms))
    by_heartbeats = []
    for group in due:
        with judgement.alone(group, progress_ms):
            if shown_plain(group, table) and not groups.clock.waiting:
                by_heartbeats.append(refreshed(group, table, progress_ms))
            else:
                judgement.refresh_view(group, progress_ms)
    groups.changed.clear()
    if by_heartbeats:
        groups.outputs.heartbeats(progress_ms, by_heartbeats)


def _in_turn(groups: Groups, progress_ms: int) -> set[str]:
    """Return the groups whose turn has come since the batch before."""
    viewed_ms, period_ms = groups.memory.viewed_ms, groups.settings.view_refresh_ms
    if progress_ms <= viewed_ms or not period_ms:
        return set()
    groups.memory.viewed_ms, in_turn = progress_ms, set()
    for group in groups.heartbeat_table.slots:
        shift_ms = zlib.crc32(group.encode()) % period_ms
        if (progress_ms - shift_ms) // period_ms > (viewed_ms - shift_ms) // period_ms:
            in_turn.add(group)
    return in_turn
