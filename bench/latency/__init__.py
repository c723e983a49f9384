"""Latency under an open load: each request is sent when it is due, whether or not earlier ones have been answered."""
