"""Every error of the durable tier, in one tree.

DurableError (MeshError)
├── InvalidDefinition         (ValueError) a field of what was to be declared or published is wrong
├── DefinitionConflict        it exists, and is not what was asked; says what differs
├── Unknown                   abstract: nothing of this name; `nearest` is one that exists
│   ├── UnknownExchange
│   ├── UnknownQueue
│   ├── UnknownStream
│   └── UnknownVhost
├── VhostUnavailable          it is there, and could not be opened when the broker started
├── BuiltIn                   built-in exchanges cannot be deleted or changed
├── QueueInUse                an exclusive consumer has the queue, or wants it while others do
├── ExclusiveQueue            it belongs to another connection
├── TooManyQueues             the vhost has as many queues and streams as it may have
├── TooManyCursors            the stream keeps as many cursors as it may
├── TooManyPatterns           streams have as many patterns as the broker's node may subscribe to
├── InUse                     it is used and was to be deleted only if unused or empty
├── InternalExchange          only exchanges may publish to it
├── AccessRefused             the caller's cluster lacks a permission
├── NoAdministrator           nobody could say any more who may do what
├── Malformed                 the other end sent what is no part of the protocol; its tunnel ends
├── PublishError              abstract: why a message was not stored
│   ├── Unroutable            mandatory, and no queue wants it
│   ├── QueueFull             a queue that refuses when full has no room
│   ├── MemoryFull            queues that are in memory only take all that they may
│   ├── RecordTooLarge        more than a segment of the log takes
│   ├── PublisherFenced       a later epoch of the same publisher has taken over
│   ├── SequenceLost          sent again so late that nobody knows if it was stored
│   └── Unconfirmed           unknown: the connection ended, or the deadline passed, before the answer
├── BrokerLost                the connection to the broker is gone, and with it what belonged to it
├── ConsumerCancelled         the broker ended this consumer: its queue is gone, or somebody took over
├── BrokerError               an error that only a later release knows
└── StoreError                abstract: of one store, a directory
    ├── StoreInUse            another broker has the directory open
    ├── ForeignStore          the directory holds something else than one store of ours
    ├── NewerFormat           written by a later version; this one must not touch it
    ├── StoreKeyMissing       it is encrypted, and the key that opens it is not there
    ├── StoreKeyWrong         it is encrypted, for none of the keys that are held
    ├── StoreFull             no space for more; resumes by itself when there is
    ├── StoreBusy             not now: wait for room, then again
    ├── StoreFailed           the disk failed; nothing more is confirmed until a restart
    ├── StoreClosed           this store has been closed
    ├── NotInLog              no such log position: freed, in a gap, or not yet durable
    └── RecordDamaged         bytes that ought to be a record are none
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
from .root import afresh as afresh
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
