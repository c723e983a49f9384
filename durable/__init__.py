"""The durable tier: brokers in the mesh that lose nothing they confirmed.

Names are loaded when first used, so that whoever wants only the log's reader loads neither trio
nor zmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.lazy import lazy_names

if TYPE_CHECKING:
    from .broker.broker import Broker as Broker
    from .broker.broker import serve as serve
    from .client.connection import Connection as Connection
    from .client.connection import connect as connect
    from .client.deliveries import Deliveries as Deliveries
    from .client.delivery import Delivery as Delivery
    from .client.delivery import DeliveryBatch as DeliveryBatch
    from .config import BrokerConfig as BrokerConfig
    from .errors import DurableError as DurableError
    from .log.config import LogConfig as LogConfig

_HOMES = {
    "Broker": "broker.broker", "serve": "broker.broker", "Connection": "client.connection",
    "connect": "client.connection", "Deliveries": "client.deliveries",
    "Delivery": "client.delivery", "DeliveryBatch": "client.delivery", "BrokerConfig": "config",
    "DurableError": "errors", "LogConfig": "log.config",
}  # fmt: skip

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
