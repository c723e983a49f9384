"""How costs grow with nodes, links, topics, subscriptions, the depth of a queue and the size of messages."""
