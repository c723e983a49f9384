"""What `mesh-broker` can be told to do."""
