"""The commands of `mesh-broker`."""
