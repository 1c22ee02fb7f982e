"""Lag: from commits and end offsets to the lag, the status and the stall of each partition."""
