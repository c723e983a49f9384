"""How costs grow: with nodes, links, topics, subscriptions, the depth of a queue, the size of messages."""
