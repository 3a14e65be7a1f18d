"""Messages survive the pipe; anything else is refused without executing it."""

from __future__ import annotations

import pickle
import socket
import struct
import threading

import numpy as np
import pytest

from fuzz import wire


def through_a_socket(raw: bytes):
    a, b = socket.socketpair()
    thread = threading.Thread(target=lambda: (a.sendall(raw), a.close()))
    thread.start()
    try:
        return wire.receive(b)
    finally:
        thread.join()
        b.close()


def test_nested_values_and_arrays_come_back():
    message = {
        "a": [1, 2, {"b": np.arange(6, dtype=np.int32).reshape(2, 3)}],
        "c": np.array([], dtype=np.float32),
        "d": [[1, 2], []],
        "e": None,
    }
    back = through_a_socket(wire.encode(message))
    assert back["a"][:2] == [1, 2] and back["d"] == [[1, 2], []] and back["e"] is None
    assert back["a"][2]["b"].dtype == np.int32 and back["a"][2]["b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert back["c"].shape == (0,)


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack("<I", 2**32 - 1),
        struct.pack("<I", 5) + b"hello",
        struct.pack("<I", 2) + b"{}",
        struct.pack("<I", 44) + b'{"body": 1, "arrays": [["object", [1]]]}    ',
        struct.pack("<I", 44) + b'{"body": 1, "arrays": [["int64", [-1]]]}    ',
        b"\xff" * 64,
    ],
)
def test_garbage_is_a_wire_error(raw):
    with pytest.raises(wire.WireError):
        through_a_socket(raw)


def test_a_pickle_is_not_loaded():
    with pytest.raises(wire.WireError):
        through_a_socket(struct.pack("<I", 200) + pickle.dumps(print).ljust(200, b"."))


def test_a_cut_message_is_closed():
    with pytest.raises(wire.Closed):
        through_a_socket(wire.encode({"a": np.arange(100)})[:-5])


def test_an_array_too_large_to_be_true_is_refused():
    header = b'{"body": 1, "arrays": [["int64", [4611686018427387904]]]}'
    with pytest.raises(wire.WireError):
        through_a_socket(struct.pack("<I", len(header)) + header)
