"""Replaying what brokers have stored, at the pace it came or any other."""
