"""Latency under an open load: requests leave when they are due, whatever became of the earlier ones."""
