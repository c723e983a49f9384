"""Measurements of the Spark tier on this machine, `local[2]`: what two cores read, and what they send."""
