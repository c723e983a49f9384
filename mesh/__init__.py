"""The mesh: Python processes that find each other, talk over encrypted links and need no server.

Names are loaded when first used, so that a program that needs only the batch codec loads neither trio
nor zmq.
"""

from __future__ import annotations

from .lazy import lazy_names

# Type checkers know this name; importing `typing` takes longer than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .config import MeshConfig as MeshConfig
    from .errors import CannotBind as CannotBind
    from .errors import ConfigError as ConfigError
    from .errors import InvalidName as InvalidName
    from .errors import KeyMissing as KeyMissing
    from .errors import LimitReached as LimitReached
    from .errors import MeshError as MeshError
    from .errors import NodeClosed as NodeClosed
    from .errors import NodeCrashed as NodeCrashed
    from .errors import NoMembers as NoMembers
    from .errors import OutOfRange as OutOfRange
    from .errors import Overloaded as Overloaded
    from .errors import PeerLost as PeerLost
    from .errors import RequestError as RequestError
    from .errors import RequestTimeout as RequestTimeout
    from .errors import ServiceError as ServiceError
    from .errors import TooLarge as TooLarge
    from .errors import TunnelBroken as TunnelBroken
    from .errors import WrongThread as WrongThread
    from .joining import join as join
    from .message import Message as Message
    from .node import Node as Node
    from .protocol.membership import Change as Change
    from .protocol.membership import Member as Member
    from .protocol.membership import State as State
    from .service import Request as Request
    from .service import Service as Service
    from .subscription import Subscription as Subscription
    from .tunnel import Tunnel as Tunnel

_HOMES = {
    "MeshConfig": "config", "Message": "message", "Node": "node", "Change": "protocol.membership",
    "Member": "protocol.membership", "Request": "service", "Service": "service",
    "State": "protocol.membership", "Subscription": "subscription", "Tunnel": "tunnel", "join": "joining",
    **dict.fromkeys(
        (
            "CannotBind", "ConfigError", "InvalidName", "KeyMissing", "LimitReached", "MeshError",
            "NoMembers", "NodeClosed", "NodeCrashed", "OutOfRange", "Overloaded", "PeerLost",
            "RequestError", "RequestTimeout", "ServiceError", "TooLarge", "TunnelBroken", "WrongThread",
        ),
        "errors",
    ),
}  # fmt: skip

__all__ = sorted(_HOMES)

if not TYPE_CHECKING:  # With `__getattr__` a type checker would accept any name.
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
