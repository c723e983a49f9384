"""Where messages go: exchanges, bindings, and who may use them. All of it in memory."""
