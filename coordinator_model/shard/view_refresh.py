"""Which groups are shown again at the end of a batch, though nothing was found of them.

Those that changed, and each once in ``view_refresh_ms``, staggered by the hash of its name. To show a group whole takes
a millisecond or two. Where all groups have findings, as in an outage, only some of those whose turn has come are shown
whole in one batch: else a batch that took long would make the next one take longer.
"""

import zlib

from coordinator_model.shard.group_judgement import GroupJudgement
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.refresh import forget_shown, refreshed, shown_plain

WHOLE_AT_ONCE = 40
"""Of a shard's groups, in one batch, that have not changed."""


def refresh_views(groups: Groups, judgement: GroupJudgement) -> None:
    """Show the groups that are due: whole, or by their heartbeats alone where nothing else came since."""
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
    """Return the groups whose turn has come since the batch before, first those whose turn came last."""
    viewed_ms, period_ms = groups.memory.viewed_ms, groups.settings.view_refresh_ms
    if progress_ms <= viewed_ms or not period_ms:
        return []
    groups.memory.viewed_ms, in_turn = progress_ms, []
    for group in groups.heartbeat_table.slots:
        shift_ms = zlib.crc32(group.encode()) % period_ms
        if (progress_ms - shift_ms) // period_ms > (viewed_ms - shift_ms) // period_ms:
            in_turn.append(((progress_ms - shift_ms) % period_ms, group))
    return [group for _, group in sorted(in_turn)]
