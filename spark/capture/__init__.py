"""The source `mesh-capture`: reads what a broker has stored from its directory."""
