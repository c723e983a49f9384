"""Every error of the durable tier, in one tree.

DurableError (MeshError)
├── InvalidDefinition         (ValueError) a field of what was to be declared or published is wrong
├── DefinitionConflict        the name exists with other settings; says which differ
├── Unknown                   abstract: nothing has this name; `nearest` is a similar name that exists
│   ├── UnknownExchange
│   ├── UnknownQueue
│   ├── UnknownStream
│   └── UnknownVhost
├── VhostUnavailable          the vhost exists, but could not be opened when the broker started
├── BuiltIn                   built-in exchanges cannot be deleted or changed
├── QueueInUse                an exclusive consumer has the queue, or wants it while others do
├── ExclusiveQueue            the queue belongs to another connection
├── TooManyQueues             the vhost has reached its limit of queues and streams
├── TooManyCursors            the stream has reached its limit of cursors
├── TooManyPatterns           streams would have more patterns than the broker's node may subscribe to
├── InUse                     deletion was asked only if unused or empty, and it is used or not empty
├── InternalExchange          only exchanges may publish to it
├── AccessRefused             the caller's cluster lacks a permission
├── NoAdministrator           the change would leave no cluster that can change permissions
├── Malformed                 the other end violated the protocol; its tunnel ends
├── PublishError              abstract: why a message was not stored
│   ├── Unroutable            the message is mandatory, and no queue receives it
│   ├── QueueFull             a queue that refuses messages when full has no room
│   ├── MemoryFull            the queues in memory have reached their limit
│   ├── RecordTooLarge        more than a segment of the log can hold
│   ├── PublisherFenced       a later epoch of the same publisher has taken over
│   ├── SequenceLost          sent again so late that the broker no longer knows whether it was stored
│   └── Unconfirmed           unknown: the connection ended, or the deadline passed, before the answer
├── BrokerLost                the connection to the broker is gone, and with it what belonged to it
├── ConsumerCancelled         the broker ended this consumer: its queue is gone, or a message is too large for it
├── BrokerError               an error that only a later release knows
└── StoreError                abstract: about one store, a directory
    ├── StoreInUse            another broker has the directory open
    ├── ForeignStore          the directory holds something other than one store of ours
    ├── NewerFormat           written by a later version; this one must not touch it
    ├── StoreKeyMissing       the store is encrypted, and the key that opens it is not there
    ├── StoreKeyWrong         the store is encrypted for none of the keys that are held
    ├── StoreFull             the disk has no more space; resumes by itself when there is some
    ├── StoreBusy             no room at the moment: wait for room, then append again
    ├── StoreFailed           the disk failed; nothing more is confirmed until a restart
    ├── StoreClosed           this store has been closed
    ├── NotInLog              no such log position: freed, in a gap, or not yet durable
    └── RecordDamaged         the bytes at a log position are not a valid record
"""

from __future__ import annotations

from .declaring import AccessRefused as AccessRefused
from .declaring import BuiltIn as BuiltIn
from .declaring import DefinitionConflict as DefinitionConflict
from .declaring import ExclusiveQueue as ExclusiveQueue
from .declaring import InternalExchange as InternalExchange
from .declaring import InUse as InUse
from .declaring import InvalidDefinition as InvalidDefinition
from .declaring import NoAdministrator as NoAdministrator
from .declaring import TooManyCursors as TooManyCursors
from .declaring import TooManyPatterns as TooManyPatterns
from .declaring import TooManyQueues as TooManyQueues
from .declaring import Unknown as Unknown
from .declaring import UnknownExchange as UnknownExchange
from .declaring import UnknownQueue as UnknownQueue
from .declaring import UnknownStream as UnknownStream
from .declaring import UnknownVhost as UnknownVhost
from .declaring import VhostUnavailable as VhostUnavailable
from .root import DurableError as DurableError
from .root import copy_error as copy_error
from .root import nearest as nearest
from .root import shown as shown
from .sessions import BrokerError as BrokerError
from .sessions import BrokerLost as BrokerLost
from .sessions import ConsumerCancelled as ConsumerCancelled
from .sessions import Malformed as Malformed
from .sessions import MemoryFull as MemoryFull
from .sessions import PublisherFenced as PublisherFenced
from .sessions import PublishError as PublishError
from .sessions import QueueFull as QueueFull
from .sessions import QueueInUse as QueueInUse
from .sessions import RecordTooLarge as RecordTooLarge
from .sessions import SequenceLost as SequenceLost
from .sessions import Unconfirmed as Unconfirmed
from .sessions import Unroutable as Unroutable
from .store import ForeignStore as ForeignStore
from .store import NewerFormat as NewerFormat
from .store import NotInLog as NotInLog
from .store import RecordDamaged as RecordDamaged
from .store import StoreBusy as StoreBusy
from .store import StoreClosed as StoreClosed
from .store import StoreError as StoreError
from .store import StoreFailed as StoreFailed
from .store import StoreFull as StoreFull
from .store import StoreInUse as StoreInUse
from .store import StoreKeyMissing as StoreKeyMissing
from .store import StoreKeyWrong as StoreKeyWrong
from .store import cause_of as cause_of
