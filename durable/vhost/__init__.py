"""One vhost without I/O: queues, exchanges, publishers over one log."""
