"""Systems beside each other, round by round, doing the same: full throttle, and an open load."""
