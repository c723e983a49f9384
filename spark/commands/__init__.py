"""What `mesh` can do with Spark: parsers are light, pyspark is loaded when a command runs."""
