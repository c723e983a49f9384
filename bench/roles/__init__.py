"""What the child processes run: `python -m bench.roles.<name>`, started by bench.processes only."""
