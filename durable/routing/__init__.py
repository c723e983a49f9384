"""Routing: exchanges, their bindings, and the permissions of clusters. Everything is kept in memory."""
