"""Subcommands of `mesh`, one file per family; each registers itself with the parser."""
