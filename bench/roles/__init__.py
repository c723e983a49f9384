"""The programs of child processes: `python -m bench.roles.<name>`, started only by bench.processes."""
