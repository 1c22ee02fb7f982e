"""The rules, one family a module; each is a small pure function of what the replica holds."""
