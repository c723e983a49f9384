from typing import Any

class UnpackException(Exception): ...
class ExtraData(ValueError): ...

def packb(o: Any, *, use_bin_type: bool = ...) -> bytes: ...
def unpackb(
    packed: bytes | memoryview,
    *,
    raw: bool = ...,
    strict_map_key: bool = ...,
    max_str_len: int = ...,
    max_bin_len: int = ...,
    max_array_len: int = ...,
    max_map_len: int = ...,
    max_ext_len: int = ...,
) -> Any: ...
