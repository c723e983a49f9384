"""The durable tier: publisher, broker and consumer as processes of their own, links encrypted."""
