"""How far groups are behind: commits and end offsets in, the state of each partition and findings out."""
