"""Inputs of a running engine, written down to become frozen cases.

``dump`` is for engine owners: it takes the fields of a contract's case by name, as
tensors, arrays or plain values, and writes one file. Values that differ from request
to request are given once for the whole batch, the request along the first axis.
``read`` turns a file back into a case, which the reference then judges. The trade:
the form follows the case type of the contract, so a new contract needs nothing here,
and a field that was renamed makes old dumps unreadable (with an error that says so).

A file is JSON, ``{"capture": 1, "contract": NAME, "fields": {...}}``, or an ``.npz``
with the arrays ``capture``, ``contract`` and one per field. Names of fields inside
records are joined by dots: ``requests.pre`` int64 [B], ``requests.path`` int64 [B, W].
A row over the vocabulary (``requests.nodes.target``) is float32 [..., V].
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import struct
import typing
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.frozen import CorpusError, content, printable
from oracle import case as case_
from oracle import contracts
from oracle.contract import InvalidCase
from oracle.verify.rows import Row, sparse

VERSION = 1
MAX_ARRAY_BYTES = 64 << 20  # of all fields of an .npz: a small file may unpack to anything
MAX_ELEMENTS = 1 << 23  # of one field; as a list each takes some 30 bytes
MAX_DEPTH = 8  # of a field's dotted name; no case is nested that deep
# What the readers of zip and NumPy raise for bytes that are neither: they promise no one error.
NPZ_ERRORS = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, NotImplementedError, OSError, RuntimeError,
    SyntaxError, TypeError, ValueError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def dump(path: str | Path, contract: str, **fields: Any) -> Path:
    """Write one captured input of ``contract`` to ``path`` (``.json`` or ``.npz``).

    ``fields`` are the case's fields; records are given as a dict of their own fields:
    ``requests={"pre": batch.seq_lens, "committed": accept_lens}``. Tensors on any
    device are copied to the host. Lists that differ in length from request to request
    need ``.json``. Raises ValueError for another file ending.
    """
    path, flat = Path(path), dict(_flatten(fields, ""))
    if path.suffix == ".npz":
        arrays = {name: np.asarray(_host(value)) for name, value in flat.items()}
        np.savez_compressed(path, capture=np.array(VERSION), contract=np.array(contract), **arrays)
    elif path.suffix == ".json":
        plain = {name: _listed(value) for name, value in flat.items()}
        path.write_text(json.dumps({"capture": VERSION, "contract": contract, "fields": plain}), encoding="utf-8")
    else:
        raise ValueError(f"{path}: a captured input is a .json or .npz file")
    return path


def _flatten(fields: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    flat = []
    for name, value in fields.items():
        flat += _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return flat


def _host(value: Any) -> Any:
    """A tensor as an array of the host; NumPy has no bfloat16, float32 holds it exactly."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()


def _listed(value: Any) -> Any:
    value = _host(value)
    if dataclasses.is_dataclass(value):
        return case_.to_plain(value)
    if isinstance(value, (list, tuple)):
        return [_listed(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value


def read(path: Path) -> tuple[str, Any]:
    """Contract name and case of a captured input. Raises CorpusError naming the file,
    or InvalidCase naming file and field."""
    where = printable(str(path))
    name, fields = (_npz if path.suffix == ".npz" else _json)(content(path), where)
    if name not in contracts.all_contracts():
        raise CorpusError(f"{where}: contract: {name[:60]!a} is none of {', '.join(contracts.all_contracts())}")
    contract = contracts.get(name)
    try:
        case = case_.from_plain(contract.case_type, _plain(contract.case_type, _nested(fields), "case"))
        contract.domain(case)
    except InvalidCase as error:
        raise InvalidCase(f"{where}: {error}") from None
    return name, case


def _json(raw: bytes, where: str) -> tuple[str, dict[str, Any]]:
    try:
        plain = json.loads(raw)
    except (ValueError, RecursionError):
        raise CorpusError(f"{where}: is not JSON") from None
    if not isinstance(plain, dict) or plain.get("capture") != VERSION or not isinstance(plain.get("fields"), dict):
        raise CorpusError(f"{where}: is no captured input of version {VERSION}; fuzz.capture.dump writes them")
    return str(plain.get("contract")), plain["fields"]


def _npz(raw: bytes, where: str) -> tuple[str, dict[str, Any]]:
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            size = sum(i.file_size for i in archive.infolist())
        if size > MAX_ARRAY_BYTES:
            raise CorpusError(f"{where}: unpacks to more than {MAX_ARRAY_BYTES >> 20} MiB")
        with np.load(io.BytesIO(raw), allow_pickle=False) as arrays:
            fields = {name: _bounded(arrays[name]).tolist() for name in arrays.files}
    except NPZ_ERRORS as error:
        raise CorpusError(f"{where}: is no .npz of plain arrays: {str(error)[:100]!a}") from None
    if fields.pop("capture", None) != VERSION or "contract" not in fields:
        raise CorpusError(f"{where}: is no captured input of version {VERSION}; fuzz.capture.dump writes them")
    return str(fields.pop("contract")), fields


def _bounded(array: np.ndarray) -> np.ndarray:
    """The array, unless it has more elements than bytes: such a one costs nothing in a
    file and everything as a list."""
    if array.size > MAX_ELEMENTS or (array.size and not array.itemsize):
        raise ValueError(f"an array of {array.size} elements")
    return array


def _nested(fields: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in fields.items():
        *parents, leaf = name.split(".")
        if len(parents) >= MAX_DEPTH:
            raise InvalidCase(f"{name[:60]}: is nested deeper than {MAX_DEPTH} fields")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise InvalidCase(f"{name[:60]}: is a field and holds fields")
        if leaf in place:
            raise InvalidCase(f"{name[:60]}: is given twice")
        place[leaf] = value
    return nested


def _plain(cls: Any, value: Any, where: str) -> Any:
    """``value`` (lists, and dicts of lists with the record first) as JSON values of ``cls``."""
    if cls is Row:
        return case_.to_plain(_row(value, where))
    if dataclasses.is_dataclass(cls):
        hints = typing.get_type_hints(cls)
        if not isinstance(value, dict):
            raise InvalidCase(f"{where}: must hold {', '.join(hints)}")
        return {name: _plain(hints.get(name), part, f"{where}.{name}") for name, part in value.items()}
    if typing.get_origin(cls) is tuple and isinstance(value, (dict, list)):
        parts = _records(value, where) if isinstance(value, dict) else value
        return [_plain(typing.get_args(cls)[0], part, f"{where}[{i}]") for i, part in enumerate(parts)]
    if cls is float and type(value) in (int, float):
        if type(value) is int and abs(value) > 2**53:
            raise InvalidCase(f"{where}: is too large for a number with a point")
        return case_.to_plain(math.nan if value != value else float(value))
    return value


def _row(value: Any, where: str) -> Row:
    try:
        values = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        values = None
    if values is None or values.ndim != 1:
        raise InvalidCase(f"{where}: must be one number a token")
    return sparse(values)


def _records(fields: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """One dict a record, from fields that hold one entry a record."""
    sizes = {name: _size(value, f"{where}.{name}") for name, value in fields.items()}
    if len(set(sizes.values())) > 1:
        raise InvalidCase(f"{where}: one entry a record, but the fields hold {sizes}")
    return [_entry(fields, i) for i in range(next(iter(sizes.values()), 0))]


def _size(value: Any, where: str) -> int:
    if isinstance(value, dict):
        return min((_size(v, f"{where}.{k}") for k, v in value.items()), default=0)
    if not isinstance(value, list):
        raise InvalidCase(f"{where}: must hold one entry a record")
    return len(value)


def _entry(value: Any, index: int) -> Any:
    return {k: _entry(v, index) for k, v in value.items()} if isinstance(value, dict) else value[index]
