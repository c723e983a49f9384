"""The durable tier: brokers in the mesh that lose nothing they confirmed."""
