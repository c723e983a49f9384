"""Compares systems that do the same, round by round: at full throttle, and under an open load."""
