"""The demo: a real broker, real consumers, the real job, real faults, and the broker's own log as the judge.

* ``consumer``   a consumer as a process of its own
* ``child``      processes that never outlive the demo
* ``setting``    the broker, its topics, `run` and `serve`, and what their API says
* ``webhook``    where the alerts are delivered
* ``scenario``   who is killed, stalled, redeployed, and what has to follow
* ``stop``       Ctrl-C and SIGTERM, none of them lost
* ``screen``     a live table on a terminal, plain lines elsewhere
* ``verdict``    the alerts against the broker's log, member for member
"""
