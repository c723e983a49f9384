"""What programs use: connect, publish, consume, read."""
