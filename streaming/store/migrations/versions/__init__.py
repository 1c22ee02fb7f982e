"""One change of the schema a file; each names the one it follows."""
