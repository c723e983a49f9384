"""The commands of `mesh-bench`, one module each."""
