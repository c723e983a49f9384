"""The sink `mesh`: rows of a DataFrame as messages of topics, queues, streams or exchanges."""
