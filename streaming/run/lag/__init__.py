"""The lag of groups: the commits, end offsets and owners that the driver keeps (decision 0018)."""
