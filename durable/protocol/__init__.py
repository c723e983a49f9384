"""The protocol between clients and broker: what they send each other, as bytes."""
