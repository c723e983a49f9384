"""The broker: sessions, the pump, the disk."""
