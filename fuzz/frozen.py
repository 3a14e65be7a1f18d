"""A frozen case: one input whose legal outcome is written down for good.

The file is canonical JSON (sorted keys, two spaces, a final newline), so that a
formatter has nothing to argue about and a diff shows only what changed. It is
independent of Hypothesis and of the strategies: it holds the case itself.
Reading one executes nothing: JSON, a schema, and the contract's own domain.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator

from fuzz.presentation import Presentation
from oracle import case as case_
from oracle import contracts
from oracle import legal as legal_
from oracle.contract import Contract, InvalidCase, Outcome

FORMAT = 1
MAX_FILE_BYTES = 4 << 20  # a frozen case is small; a larger file is a mistake or an attack
HASH_LENGTH = 10
MAX_DEPTH = 32  # nesting of a case is shallow; deeper JSON only exhausts the parser


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
        "presentation": dataclasses.asdict(frozen.presentation),
    }
    return json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def schema(contract: Contract) -> dict[str, Any]:
    """JSON Schema of a frozen case of ``contract``."""
    text, texts = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
    presentation = {
        "strided": {"type": "boolean"},
        "order": {"type": "integer", "minimum": 0},
        "padding": {"type": "integer", "minimum": 0, "maximum": 64},
        "repeat": {"type": "boolean"},
    }
    properties = {
        "format": {"const": FORMAT},
        "contract": {"const": contract.name},
        "contract_version": {"const": contract.version},
        "slug": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 80},
        "case": case_.schema(contract.case_type),
        "legal": {"type": "object", "required": [f.name for f in contract.fields]},
        "reason": text | {"minLength": 10},
        "flags": texts,
        "links": texts,
        "provenance": {"type": "object"},
        "kills": texts,
        "presentation": {
            "type": "object",
            "properties": presentation,
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


@cache
def _validator(contract: str) -> Draft202012Validator:
    return Draft202012Validator(schema(contracts.get(contract)))


def read(path: Path) -> FrozenCase:
    """Read and check one file. Raises CorpusError naming the file."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CorpusError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB; not a frozen case")
        raw = path.read_bytes()
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from None
    return parse(raw, str(path))


def parse(raw: bytes, where: str) -> FrozenCase:
    """A frozen case from file content; ``where`` is named in errors."""
    try:
        plain = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where}: not JSON: {str(error)[:200]}") from None
    contract_name = plain.get("contract") if isinstance(plain, dict) else None
    if not isinstance(contract_name, str) or contract_name not in contracts.all_contracts():
        known = ", ".join(contracts.all_contracts())
        raise CorpusError(f"{where}: contract: no such contract {str(contract_name)[:60]!r}; there are {known}")
    contract = contracts.get(contract_name)
    problem = next(iter(_validator(contract_name).iter_errors(plain)), None)
    if problem is not None:
        place = "/".join(map(str, problem.absolute_path)) or "top level"
        raise CorpusError(f"{where}: {place}: {problem.message[:200]}")
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
