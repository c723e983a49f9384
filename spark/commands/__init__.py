"""Commands of `mesh` for captures. Their parsers are light; pyarrow and pyspark are loaded when a command runs."""
