"""The rules, one family a module: their facts, and judges that only read. ``registry`` lists them, a line each."""
