"""A frozen case: one input whose legal outcome is written down for good.

The file is canonical JSON (sorted keys, two spaces, a final newline), so that a
formatter has nothing to argue about and a diff shows only what changed. It is
independent of Hypothesis and of the strategies: it holds the case itself.
Reading one executes nothing: JSON, a schema, and the contract's own domain. A
file is opened once, must be a regular file, and may come from a stranger.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator, validators

from fuzz.presentation import ON_DEVICE, Presentation
from oracle import case as case_
from oracle import contracts
from oracle import legal as legal_
from oracle.contract import Contract, InvalidCase, Outcome

FORMAT = 1
MAX_FILE_BYTES = 4 << 20  # a frozen case is small; a larger file is a mistake or an attack
HASH_LENGTH = 10
MAX_DEPTH = 32  # nesting of a case is shallow; deeper JSON only exhausts whoever walks it
MAX_TEXT = 200  # characters of a parser's message that are repeated
# A released version only: a case file must never make a replay import code from a path.
# A bare name means the default release. \Z and not $, which also takes a final newline.
ENGINE = r"^[a-z_]+(==[0-9][0-9A-Za-z.+]*)?\Z"
SLUG = r"^[a-z0-9]+(-[a-z0-9]+)*\Z"
INT64_MAX = case_.INT64_MAX


class CorpusError(Exception):
    """A case file that cannot be used. The message names the file."""


@dataclass(frozen=True)
class FrozenCase:
    """One file of the corpus, read and checked.

    ``legal`` is the outcome as JSON values; ``kills`` names the mutants that the
    case tells from the reference.
    """

    contract: str
    contract_version: int
    slug: str
    case: Any
    legal: dict[str, Any]
    reason: str
    flags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    kills: tuple[str, ...] = ()
    presentation: Presentation = Presentation()

    @property
    def name(self) -> str:
        """``contract/slug-hash``, the stable name of the case."""
        return f"{self.contract}/{self.slug}-{content_hash(self.contract, self.case)}"


def content_hash(contract: str, case: Any) -> str:
    """Hash of what is asked, not of how it is explained."""
    text = json.dumps([contract, case_.to_plain(case)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def plain_outcome(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON values; arrays become nested lists."""
    return {k: v.tolist() if isinstance(v, np.ndarray) else legal_.to_plain(v) for k, v in outcome.items()}


def drifted(frozen: FrozenCase) -> bool:
    """True when the reference no longer gives the frozen outcome. Compared as
    JSON text, because in Python ``1 == 1.0 == True``."""
    fresh = plain_outcome(contracts.get(frozen.contract).run(frozen.case)[0])
    return json.dumps(fresh, sort_keys=True) != json.dumps(frozen.legal, sort_keys=True)


def to_text(frozen: FrozenCase) -> str:
    """The canonical file content."""
    plain = {
        "format": FORMAT,
        "contract": frozen.contract,
        "contract_version": frozen.contract_version,
        "slug": frozen.slug,
        "case": case_.to_plain(frozen.case),
        "legal": frozen.legal,
        "reason": frozen.reason,
        "flags": list(frozen.flags),
        "links": list(frozen.links),
        "provenance": frozen.provenance,
        "kills": sorted(frozen.kills),
        "presentation": {
            name: value
            for name, value in dataclasses.asdict(frozen.presentation).items()
            if value or name not in ON_DEVICE  # written only where it is asked for: older files stay as they are
        },
    }
    return json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def to_bytes(frozen: FrozenCase, where: str) -> bytes:
    """The canonical file content in UTF-8. Raises CorpusError naming ``where``
    when a text of it is none, such as an argument that was not UTF-8."""
    try:
        return to_text(frozen).encode("utf-8")
    except UnicodeEncodeError as error:
        raise CorpusError(f"{printable(where)}: {error.object[error.start]!a} in a text is no character") from None


def printable(text: str) -> str:
    """``text`` with lone surrogates spelled out, so that it can be printed."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def schema(contract: Contract) -> dict[str, Any]:
    """JSON Schema of a frozen case of ``contract``."""
    text, texts = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
    presentation = {
        "strided": {"type": "boolean"},
        "order": {"type": "integer", "minimum": 0, "maximum": INT64_MAX},
        "padding": {"type": "integer", "minimum": 0, "maximum": 64},
        "repeat": {"type": "boolean"},
    }
    properties = {
        "format": {"type": "integer", "const": FORMAT},
        "contract": {"const": contract.name},
        "contract_version": {"type": "integer", "const": contract.version},
        "slug": text | {"pattern": SLUG, "maxLength": 80},
        "case": case_.schema(contract.case_type),
        "legal": {"type": "object", "required": [f.name for f in contract.fields]},
        "reason": text | {"minLength": 10},
        "flags": texts,
        "links": texts,
        "provenance": {
            "type": "object",
            "properties": {"engine": text | {"pattern": ENGINE}, "target": text},
            "additionalProperties": {"type": ["string", "integer"], "minimum": -INT64_MAX, "maximum": INT64_MAX},
        },
        "kills": texts,
        "presentation": {
            "type": "object",
            "properties": presentation | {name: {"type": "boolean"} for name in ON_DEVICE},
            "required": list(presentation),
            "additionalProperties": False,
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"frozen case of {contract.name}",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _strict_integer(_: Any, value: Any) -> bool:
    """jsonschema takes 2.0 and 1e300 for integers; nothing behind it does."""
    return type(value) is int


_Validator = validators.extend(
    Draft202012Validator, type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _strict_integer)
)


@cache
def _validator(contract: str) -> Any:
    return _Validator(schema(contracts.get(contract)))


def content(path: Path) -> bytes:
    """The bytes of a regular file of the corpus. Raises CorpusError naming it.

    Opened once, without waiting, and judged by what was opened: a FIFO would block
    for ever, a device never ends, and a path may change between two looks. One
    byte more than allowed is read at most, so that a file that grows is refused.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise CorpusError(f"{printable(str(path))}: not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                raw = file.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CorpusError(f"{printable(str(path))}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a NUL byte in the path
        raise CorpusError(f"{str(path)!a}: cannot be read: {error}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise CorpusError(f"{printable(str(path))}: larger than {MAX_FILE_BYTES >> 20} MiB; not a file of a corpus")
    return raw


def read_toml(path: Path) -> dict[str, Any]:
    """A table file of a corpus, such as ``support.toml``. Raises CorpusError."""
    raw = content(path)
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorpusError(f"{path}: not TOML: {str(error)[:MAX_TEXT]}") from None


def require_folder(corpus: Path) -> None:
    """Raise CorpusError unless ``corpus`` is a folder: a misspelt path must not
    read as a corpus in which nothing is listed."""
    if not os.path.isdir(corpus):  # of os.path: it answers for unreadable and impossible paths too
        what = "not a folder" if os.path.lexists(corpus) else "no such folder"
        raise CorpusError(f"{printable(str(corpus))}: {what}; --corpus names a folder with one folder per contract")


def read(path: Path) -> FrozenCase:
    """Read and check one file. Raises CorpusError naming the file."""
    return parse(content(path), str(path))


def check(frozen: FrozenCase, where: str) -> None:
    """Raise CorpusError naming ``where`` unless the file written for ``frozen``
    will be read again."""
    raw = to_bytes(frozen, where)
    if len(raw) > MAX_FILE_BYTES:
        raise CorpusError(f"{printable(where)}: would be larger than {MAX_FILE_BYTES >> 20} MiB")
    parse(raw, where)


def parse(raw: bytes, where: str) -> FrozenCase:
    """A frozen case from file content; ``where`` is named in errors."""
    where = printable(where)
    try:
        plain = json.loads(raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where}: not JSON: {printable(str(error)[:MAX_TEXT])}") from None
    _walk(plain, where)
    contract_name = plain.get("contract") if isinstance(plain, dict) else None
    if not isinstance(contract_name, str) or contract_name not in contracts.all_contracts():
        known = ", ".join(contracts.all_contracts())
        raise CorpusError(f"{where}: contract: no such contract {str(contract_name)[:60]!r}; there are {known}")
    contract = contracts.get(contract_name)
    problem = next(iter(_validator(contract_name).iter_errors(plain)), None)
    if problem is not None:
        place = "/".join(map(str, problem.absolute_path)) or "top level"
        raise CorpusError(f"{where}: {place}: {problem.message[:MAX_TEXT]}")
    try:
        case = case_.from_plain(contract.case_type, plain["case"])
        contract.domain(case)
    except InvalidCase as error:
        raise CorpusError(f"{where}: {error}") from None
    return FrozenCase(
        contract=contract_name,
        contract_version=plain["contract_version"],
        slug=plain["slug"],
        case=case,
        legal=plain["legal"],
        reason=plain["reason"],
        flags=tuple(plain["flags"]),
        links=tuple(plain["links"]),
        provenance=plain["provenance"],
        kills=tuple(plain["kills"]),
        presentation=Presentation(**plain["presentation"]),
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. A key given twice is refused: another reader of the file
    may take the other value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"key {twice[:60]!a} stands twice in one object")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _walk(plain: Any, where: str) -> None:
    """Refuse what parses but breaks whoever handles it later: deep nesting, and
    lone surrogates, which cannot be written or printed."""
    left = [(plain, 1)]
    while left:
        value, depth = left.pop()
        if depth > MAX_DEPTH:
            raise CorpusError(f"{where}: nested deeper than {MAX_DEPTH} levels; not a frozen case")
        if isinstance(value, dict):
            left += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, list):
            left += [(part, depth + 1) for part in value]
        elif isinstance(value, str) and not value.isascii() and printable(value) != value:
            raise CorpusError(f"{where}: {value[:60]!a}: a lone surrogate is no character")
