"""Queues without I/O: which messages are ready, which consumer gets them, and which are settled."""
