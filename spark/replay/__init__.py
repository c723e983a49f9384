"""Replays what brokers have stored, at the original pace or any other."""
