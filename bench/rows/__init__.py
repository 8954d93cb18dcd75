"""The rows, a module a group: `measure(jobs)` returns them."""
