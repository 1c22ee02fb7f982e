"""The demo: a real broker, real consumers, the real job and real faults. Alerts are compared with the broker's own log.

* ``consumer``   a consumer as a process of its own
* ``child``      processes that never outlive the demo
* ``setting``    the broker, its topics, `run` and `serve`, and their API
* ``webhook``    the receiver of the alerts
* ``scenario``   which consumers are killed, stalled and redeployed, and the alerts that have to follow
* ``stop``       handlers of Ctrl-C and SIGTERM that lose neither
* ``screen``     a live table on a terminal, plain lines elsewhere
* ``verdict``    compares the alerts with the broker's log, member by member
* ``sample``     records the capture of `replay --sample`
"""
