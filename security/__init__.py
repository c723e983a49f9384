"""Keys, the rules for using them, and signed announcements. Imports nothing from the mesh."""
