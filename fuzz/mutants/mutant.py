"""What a mutant is, and how it is found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from oracle.contract import Contract, Outcome
from oracle.judgement import judge


@dataclass(frozen=True)
class Mutant:
    """A small wrong version of one contract's operation.

    fault    the class of fault it stands for, such as ``off_by_one``
    observe  case -> what this wrong version would be observed to do, or ``None``
             for a case it has nothing to say about
    """

    name: str
    fault: str
    meaning: str
    observe: Callable[[Any], dict[str, Any] | None]

    def killed_by(self, contract: Contract, case: Any, legal: Outcome | None = None) -> bool:
        """True when the judgement tells this mutant from the reference. ``legal`` is
        the outcome of ``case`` where it is known already."""
        observed = self.observe(case)
        return observed is not None and not judge(contract, legal or contract.run(case)[0], observed).agrees


@cache
def mutants_of(contract: str) -> tuple[Mutant, ...]:
    """The mutants of a contract, from the module named like its last part."""
    return import_module(f"fuzz.mutants.{contract.rpartition('.')[2]}").MUTANTS
