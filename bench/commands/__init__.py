"""What `mesh-bench` can be told to do, a file each."""
