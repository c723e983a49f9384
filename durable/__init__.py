"""The durable tier: brokers in the mesh that lose nothing they confirmed.

Names are loaded when first used, so a program that only reads a log loads neither trio nor zmq.
"""

from __future__ import annotations

from mesh.lazy import lazy_names

# Type checkers know this name; importing `typing` for it takes longer than the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .broker.broker import Broker as Broker
    from .broker.broker import serve as serve
    from .client.connection import Connection as Connection
    from .client.connection import connect as connect
    from .client.deliveries import Deliveries as Deliveries
    from .client.delivery import Delivery as Delivery
    from .client.delivery import DeliveryBatch as DeliveryBatch
    from .client.numbered_publisher import NumberedPublisher as NumberedPublisher
    from .client.publisher import Publisher as Publisher
    from .client.records import Records as Records
    from .config import BrokerConfig as BrokerConfig
    from .definitions import ExchangeDefinition as ExchangeDefinition
    from .definitions import QueueDefinition as QueueDefinition
    from .definitions import StreamDefinition as StreamDefinition
    from .errors import AccessRefused as AccessRefused
    from .errors import BrokerError as BrokerError
    from .errors import BrokerLost as BrokerLost
    from .errors import BuiltIn as BuiltIn
    from .errors import ConsumerCancelled as ConsumerCancelled
    from .errors import DefinitionConflict as DefinitionConflict
    from .errors import DurableError as DurableError
    from .errors import ExclusiveQueue as ExclusiveQueue
    from .errors import ForeignStore as ForeignStore
    from .errors import InternalExchange as InternalExchange
    from .errors import InUse as InUse
    from .errors import InvalidDefinition as InvalidDefinition
    from .errors import Malformed as Malformed
    from .errors import MemoryFull as MemoryFull
    from .errors import NewerFormat as NewerFormat
    from .errors import NoAdministrator as NoAdministrator
    from .errors import NotInLog as NotInLog
    from .errors import PublisherFenced as PublisherFenced
    from .errors import PublishError as PublishError
    from .errors import QueueFull as QueueFull
    from .errors import QueueInUse as QueueInUse
    from .errors import RecordDamaged as RecordDamaged
    from .errors import RecordTooLarge as RecordTooLarge
    from .errors import SequenceLost as SequenceLost
    from .errors import StoreBusy as StoreBusy
    from .errors import StoreClosed as StoreClosed
    from .errors import StoreError as StoreError
    from .errors import StoreFailed as StoreFailed
    from .errors import StoreFull as StoreFull
    from .errors import StoreInUse as StoreInUse
    from .errors import StoreKeyMissing as StoreKeyMissing
    from .errors import StoreKeyWrong as StoreKeyWrong
    from .errors import TooManyCursors as TooManyCursors
    from .errors import TooManyPatterns as TooManyPatterns
    from .errors import TooManyQueues as TooManyQueues
    from .errors import Unconfirmed as Unconfirmed
    from .errors import Unknown as Unknown
    from .errors import UnknownExchange as UnknownExchange
    from .errors import UnknownQueue as UnknownQueue
    from .errors import UnknownStream as UnknownStream
    from .errors import UnknownVhost as UnknownVhost
    from .errors import Unroutable as Unroutable
    from .errors import VhostUnavailable as VhostUnavailable
    from .log.config import LogConfig as LogConfig
    from .protocol.properties import Death as Death
    from .protocol.properties import Properties as Properties

_HOMES = {
    "Broker": "broker.broker", "serve": "broker.broker", "Connection": "client.connection",
    "connect": "client.connection", "Deliveries": "client.deliveries",
    "Delivery": "client.delivery", "DeliveryBatch": "client.delivery",
    "NumberedPublisher": "client.numbered_publisher", "Publisher": "client.publisher",
    "Records": "client.records", "BrokerConfig": "config", "ExchangeDefinition": "definitions",
    "QueueDefinition": "definitions", "StreamDefinition": "definitions", "LogConfig": "log.config",
    "Death": "protocol.properties", "Properties": "protocol.properties",
    **dict.fromkeys(
        (
            "AccessRefused", "BrokerError", "BrokerLost", "BuiltIn", "ConsumerCancelled",
            "DefinitionConflict", "DurableError", "ExclusiveQueue", "ForeignStore", "InUse",
            "InternalExchange", "InvalidDefinition", "Malformed", "MemoryFull", "NewerFormat", "NoAdministrator", "NotInLog",
            "PublishError", "PublisherFenced", "QueueFull", "QueueInUse", "RecordDamaged",
            "RecordTooLarge", "SequenceLost", "StoreBusy", "StoreClosed", "StoreError",
            "StoreFailed", "StoreFull", "StoreInUse", "StoreKeyMissing", "StoreKeyWrong",
            "TooManyCursors", "TooManyPatterns", "TooManyQueues", "Unconfirmed", "Unknown",
            "UnknownExchange", "UnknownQueue", "UnknownStream", "UnknownVhost", "Unroutable",
            "VhostUnavailable",
        ),
        "errors",
    ),
}  # fmt: skip

__all__ = sorted(_HOMES)

if not TYPE_CHECKING:  # With a `__getattr__`, type checkers would accept any name.
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
