"""The protocol of a node as state machines: frames, times and chance in, instructions out."""
