"""``partition-unowned``: no member of a stable classic group owns a partition of a topic that the group subscribes to.

The number of partitions of a topic is not in ``__consumer_offsets``, so ``run`` asks the brokers. A topic is not judged
if that number is not known. KIP-848 groups are not judged: their records name the assigned topics by id only, the
subscribed ones by name. Nor is a group in which no member owns a partition of any of its topics.
"""

from coordinator_model.membership import Partition, unowned
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.rules.findings import MAX_PARTITIONS_NAMED, NOTHING, Finding, Verdict, about_group
from coordinator_model.rules.rule import WARN_THEN_PAGE, Rule
from coordinator_model.rules.settled import quiet_since_ms
from coordinator_model.states import Cause, Evidence
from coordinator_model.wording import counted

PARTITION_UNOWNED = Rule(
    id="partition-unowned",
    severities=WARN_THEN_PAGE,
    evidence=(
        "observed. Partition counts are at most a minute old; ten minutes, if a topic was created since `run` started"
        " and no member owns a partition of it"
    ),
    true_when=(
        "at least one partition of a topic that a stable classic group subscribes to has had no owner for"
        " `unstable_after_ms`. It becomes a page after `page_after_ms`. Partitions that are added after the first"
        " start of `run` are judged five minutes after `run` has noticed them: by then, consumers have noticed them,"
        " too. KIP-848 groups are not judged"
    ),
    clears="`recovered` (every partition has an owner, or the group is not stable)",
    thresholds=("unstable_after_ms", "page_after_ms"),
)


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge the topics that a stable group subscribes to: first a warning, then a page.

    While the coordinator is silent, nobody knows whether the partitions still have no owner. So a finding that was
    reported goes on as it was, and none begins.
    """
    quiet_ms, reported = quiet_since_ms(replica, context), context.reported.get(PARTITION_UNOWNED.id)
    unknown = context.waiting or context.stalled
    if quiet_ms is None or not context.topic_partitions or (unknown and reported is None):
        return NOTHING
    since_ms_of = {place: max(quiet_ms, _owned_by_ms(place, context)) for place in unowned_partitions(replica, context)}
    if not since_ms_of:
        return NOTHING
    since_ms = min(since_ms_of.values())
    warn_ms = since_ms + context.thresholds.unstable_after_ms
    page_ms = since_ms + max(context.thresholds.page_after_ms, context.thresholds.unstable_after_ms)
    if context.progress_ms < warn_ms:
        return Verdict(None, warn_ms)
    missing = [place for place, at_ms in since_ms_of.items() if at_ms <= context.progress_ms]
    paging = reported == PARTITION_UNOWNED.worst if unknown else context.progress_ms >= page_ms
    listed = ", ".join(f"{topic}-{partition}" for topic, partition in missing[:8])
    finding = Finding(
        rule=PARTITION_UNOWNED.id,
        severity=PARTITION_UNOWNED.worst if paging else PARTITION_UNOWNED.severity,
        opened_ms=since_ms,
        at_ms=warn_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{replica.group} is stable, and nobody owns {counted(len(missing), 'partition')} of its topics:"
        f" {listed}",
        partitions=missing[:MAX_PARTITIONS_NAMED],
        detail={"unowned": len(missing)},
        **about_group(replica, context),
    )
    return Verdict(finding, None if paging or unknown else page_ms)


def _owned_by_ms(place: Partition, context: JudgementContext) -> int:
    """Return by when a partition should have an owner; 0 if it was there before."""
    topic, number = place
    added = context.added_partitions.get(topic)
    return added.owned_by_ms if added is not None and number >= added.first else 0


def unowned_partitions(replica: GroupReplica, context: JudgementContext) -> list[Partition]:
    """Return the partitions of subscribed topics that have no owner, sorted."""
    wanted = {topic for member in replica.members.values() for topic in member.topics}
    owned = replica.owned()
    if not replica.owners_known or not wanted & {topic for topic, _ in owned}:
        return []  # nothing is assigned, or it is a KIP-848 group, whose assigned topics are known by id only
    places = ((topic, number) for topic in wanted for number in range(context.topic_partitions.get(topic, 0)))
    return unowned(places, owned)
