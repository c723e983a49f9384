"""Keys, who may use them, and signed announcements. Imports nothing from the mesh."""
