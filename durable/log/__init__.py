"""The log underneath the durable tier: records in segment files, one sync for all of them."""
