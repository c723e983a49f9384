"""Measurements of the durable tier: publisher, broker and consumer are processes of their own, links are encrypted."""
