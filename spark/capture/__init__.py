"""Reading what a broker has stored, from its directory: the source `mesh-capture`."""
