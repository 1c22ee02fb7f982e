"""PromQL over our own metrics. `$cluster` and `$group` are the dashboards' variables.

Clients choose group ids. Between double quotes, Grafana's Prometheus data source changes a `'` in an id and does not
escape a `"` (grafana/grafana, packages/grafana-prometheus/src/escaping.ts, unless a feature toggle is on). So ids are
written raw between backticks, where PromQL has no escapes. Only an id that contains a backtick breaks its panels, but
not its page.

Every expression drops Prometheus' own labels (`instance`, `job`) by aggregating over ours, so that two `serve`s on one
store are shown as one. A sum would count each series twice, so sums go over what `once` returns.
"""

from typing import Final

from coordinator_model.states import REBALANCING, GroupState
from streaming.serve import metrics

STATE_NUMBERS: Final = {state: number for number, state in enumerate(GroupState)}
"""A state timeline needs numbers; the panel maps them back to names."""

IN_CLUSTER: Final = 'cluster=~"$cluster"'
OF_GROUP: Final = "cluster=`${cluster:raw}`, group=`${group:raw}`"
_BY_GROUP: Final = "by (cluster, group)"
WHILE_REBALANCING: Final = f'state=~"{"|".join(REBALANCING)}"'


def once(expr: str) -> str:
    """Return an expression's series once, even if several `serve`s show the same store."""
    return f"max without (instance, job, pod) ({expr})"


def total(metric: str, *by: str, where: str = IN_CLUSTER, function: str = "sum") -> str:
    """Return a metric aggregated over all labels except `by`."""
    series = f"{metric}{{{where}}}"
    return f"{function} by ({', '.join(by)}) ({once(series) if function == 'sum' else series})"


def all_of(metric: str, where: str = IN_CLUSTER) -> str:
    """Return the sum of a metric; 0 if it has no series."""
    return f"sum({once(f'{metric}{{{where}}}')}) or vector(0)"


def rate(metric: str, *by: str, where: str = IN_CLUSTER) -> str:
    """Return a counter's rate per second."""
    return f"sum by ({', '.join(by)}) ({once(f'rate({metric}{{{where}}}[$__rate_interval])')})"


def increase(metric: str, *by: str, window: str = "$__range", where: str = IN_CLUSTER) -> str:
    """Return how much a counter grew within a window, by default the time shown."""
    return f"sum by ({', '.join(by)}) ({once(f'increase({metric}{{{where}}}[{window}])')})"


def quantile(histogram: str, share: float) -> str:
    """Return a quantile of a histogram in seconds, by cluster."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', 'cluster', 'le')})"


def new_generations(window: str, where: str = IN_CLUSTER) -> str:
    """Count generations begun within a window. Unlike `changes`, this counts all of several between two scrapes.

    A group that is deleted and created again begins at 1, like a counter that is reset.
    """
    return f"max {_BY_GROUP} (round(increase({metrics.GROUP_GENERATION}{{{where}}}[{window}])))"


def rebalancing(where: str = IN_CLUSTER) -> str:
    """Return 1 for every group that is rebalancing."""
    return f"max {_BY_GROUP} ({metrics.GROUP_INFO}{{{where}, {WHILE_REBALANCING}}})"


def members_rebalancing(where: str = IN_CLUSTER) -> str:
    """Count the members of groups that are rebalancing; 0 if there are none."""
    members = f"max {_BY_GROUP} ({metrics.GROUP_MEMBERS}{{{where}}})"
    return f"(sum({members} and on (cluster, group) {rebalancing(where)}) or vector(0))"


def rebalancing_share(window: str, where: str = IN_CLUSTER) -> str:
    """Return the share of a window's scrapes in which a group was rebalancing."""
    busy = f"sum {_BY_GROUP} (count_over_time({metrics.GROUP_INFO}{{{where}, {WHILE_REBALANCING}}}[{window}]))"
    return f"{busy} / sum {_BY_GROUP} (count_over_time({metrics.GROUP_INFO}{{{where}}}[{window}]))"


def state_number(where: str = OF_GROUP) -> str:
    """Return a group's state as its number in `STATE_NUMBERS`."""
    info = (
        f'(0 * max {_BY_GROUP} ({metrics.GROUP_INFO}{{{where}, state="{state}"}}) + {number})'
        for state, number in STATE_NUMBERS.items()
    )
    return " or ".join(info)


def phase_ages(*by: str, where: str = IN_CLUSTER) -> str:
    """Return how long the current phase of each rebalance has lasted, in seconds."""
    return f"max by ({', '.join(by)}) (time() - {metrics.PHASE_STARTED}{{{where}}})"


def waited_for(where: str = IN_CLUSTER) -> str:
    """Return which clients and hosts rebalances in the time shown waited for: the most members of each at once."""
    members = f"{metrics.WAITED_FOR}{{{where}}}[$__range]"
    return f"max by (cluster, group, client_id, client_host) (max_over_time({members}))"


def slope(metric: str, *by: str, where: str = OF_GROUP) -> str:
    """Return the growth per second of a sum of offsets; it is negative if offsets went back."""
    return f"max by ({', '.join(by)}) (deriv({metric}{{{where}}}[$__rate_interval]))"


def incident_ages(where: str = IN_CLUSTER) -> str:
    """Return how long the oldest open incident of a group, rule and severity has been open, in seconds."""
    opened = f"{metrics.GROUP_INCIDENT_OPENED}{{{where}}}"
    return f"max by (cluster, group, rule, severity) (time() - {opened})"
