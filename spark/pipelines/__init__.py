"""Analyses of captured traffic, as plain functions over batch or streaming DataFrames.

    from spark import pipelines, read_capture, session
    df = read_capture(session(), "orders.data")
    pipelines.rates(df, every_s=10).show()

Each takes rows of `mesh-capture` (see spark/capture/rows.py) and returns another DataFrame. On a
stream each window is returned once, when the watermark has passed it: write it in append mode.
"""

from .anomalies import anomalies
from .export import messages, write_parquet
from .latency import latency
from .sequences import ON_THE_MESH, TO_THE_BROKER, sequences
from .traffic import rates, sessions, top_talkers

__all__ = [
    "ON_THE_MESH",
    "TO_THE_BROKER",
    "anomalies",
    "latency",
    "messages",
    "rates",
    "sequences",
    "sessions",
    "top_talkers",
    "write_parquet",
]
