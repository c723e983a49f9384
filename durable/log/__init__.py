"""The log of the durable tier: records in segment files; one sync makes all records written together durable."""
