"""`group-monitor audit`: a report about the groups of a cluster on which nothing of ours is set up. It only reads.

* ``ask``     the groups, members and topics that the brokers report now
* ``read``    the records of `__consumer_offsets`, newest first, within a time limit
* ``assess``  findings from both; ``storm``: whether a group rebalanced too often
* ``tiers``   which sources the cluster has, and what others would add
* ``report``  Markdown and JSON; ``meanings``: what each rule means
* ``audit``   all of these steps in order
"""
