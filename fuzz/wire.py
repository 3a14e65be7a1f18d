"""Messages between supervisor and worker: a JSON header and raw array bytes.

No pickle: a worker runs code under test and may send anything. A message is a
4-byte little-endian header length, the header, then the arrays in the order in
which the header lists them. Arrays may be nested at any depth of the header;
their places hold ``{"array": i}``.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import numpy as np

MAX_HEADER_BYTES = 64 << 20  # a longer one is garbage, not a message
MAX_ARRAY_BYTES = 4 << 30
_DTYPES = frozenset(
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
)


class WireError(Exception):
    """The peer sent something that is not a message."""


class Closed(Exception):
    """The peer closed the connection (or died)."""


def encode(message: Any) -> bytes:
    """One message as bytes. Values: JSON types and NumPy arrays."""
    arrays: list[np.ndarray] = []

    def strip(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(np.ascontiguousarray(value))
            return {"array": len(arrays) - 1}
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)) and not all(type(v) is int for v in value):
            return [strip(v) for v in value]
        if isinstance(value, np.generic):
            return value.item()
        return value

    body = strip(message)
    shapes = [[str(a.dtype), list(a.shape)] for a in arrays]
    header = json.dumps({"body": body, "arrays": shapes}, separators=(",", ":")).encode()
    return b"".join([struct.pack("<I", len(header)), header, *(a.tobytes() for a in arrays)])


def decode_header(raw: bytes) -> tuple[Any, list[tuple[np.dtype, tuple[int, ...]]]]:
    """Body and array descriptions; raises WireError for anything else."""
    try:
        header = json.loads(raw)
        body, arrays = header["body"], []
        for dtype, shape in header["arrays"]:
            if dtype not in _DTYPES or not all(isinstance(n, int) and n >= 0 for n in shape):
                raise WireError(f"bad array description {dtype!r} {shape!r}")
            arrays.append((np.dtype(dtype), tuple(shape)))
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"not a message: {error}") from None
    return body, arrays


def restore(body: Any, arrays: list[np.ndarray]) -> Any:
    """Put the arrays back into their places."""
    if isinstance(body, dict):
        if body.keys() == {"array"}:
            return arrays[body["array"]]
        return {k: restore(v, arrays) for k, v in body.items()}
    if isinstance(body, list) and arrays:
        return [restore(v, arrays) if isinstance(v, (dict, list)) else v for v in body]
    return body


def send(sock: socket.socket, message: Any) -> None:
    """Send one message; Closed when the peer is gone."""
    try:
        sock.sendall(encode(message))
    except (BrokenPipeError, ConnectionResetError):
        raise Closed from None


def receive(sock: socket.socket) -> Any:
    """Receive one message. TimeoutError follows the socket's own timeout."""
    (size,) = struct.unpack("<I", _exactly(sock, 4))
    if size > MAX_HEADER_BYTES:
        raise WireError(f"header of {size} bytes")
    body, shapes = decode_header(_exactly(sock, size))
    arrays = []
    for dtype, shape in shapes:
        count = int(np.prod(shape, dtype=np.int64))
        if count * dtype.itemsize > MAX_ARRAY_BYTES:
            raise WireError(f"array of {count} elements")
        arrays.append(np.frombuffer(_exactly(sock, count * dtype.itemsize), dtype=dtype).reshape(shape))
    return restore(body, arrays)


def _exactly(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        try:
            got = sock.recv_into(view[done:])
        except ConnectionResetError:
            raise Closed from None
        if got == 0:
            raise Closed
        done += got
    return data
