"""What travels between clients and broker, as bytes."""
