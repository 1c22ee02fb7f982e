"""What writes documents from the code: `make docs` and `make rules`."""
