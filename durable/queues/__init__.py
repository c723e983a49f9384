"""Queues without I/O: which messages are ready, who gets them, what is settled."""
