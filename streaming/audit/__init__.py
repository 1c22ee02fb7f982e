"""`group-monitor audit`: a report about the groups of a cluster that has none of our set-up. It only reads.

* ``ask``     what the brokers say now: groups, members, topics
* ``read``    what `__consumer_offsets` says, newest first, as far as a time box goes
* ``assess``  what follows from both; ``storm``: which rebalances are too many
* ``report``  Markdown and JSON; ``meanings``: what each rule means
* ``audit``   one after the other
"""
