"""How far groups are behind: what is kept of commits, end offsets and owners, in the driver (decision 0018)."""
