"""The client API: connect, publish, consume, read."""
