"""The adapters whose kernels need a GPU, with a double of the kernel in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz import corpus
from fuzz.engines.spec import parse
from fuzz.executor import execute
from fuzz.launch import launch_for
from fuzz.supervisor import PROJECT_ROOT, Session
from fuzz.verdict import Kind
from tests.sampling_doubles import ADAPTERS, CONTRACT

pytestmark = pytest.mark.engine

CASES = [f for _, f in corpus.load(corpus.DEFAULT_CORPUS / CONTRACT)]


@pytest.fixture(scope="module", params=["0.5.10", "0.5.14", "0.5.20", "0.5.23"])
def session(request):
    launch = launch_for(parse(f"sglang=={request.param}"))
    doubles = replace(
        launch,
        modules=(*launch.modules, "tests.sampling_doubles_worker"),
        targets=tuple(a.id for a in ADAPTERS.values()),
        packages={**launch.packages, "tests": str(PROJECT_ROOT / "tests")},
    )
    with Session(doubles) as session:
        yield session


@pytest.mark.parametrize("name", list(ADAPTERS))
def test_an_adapter_agrees_on_every_frozen_case_that_it_takes(session, name):
    if name == "dflash" and session.launch.version == "0.5.10":
        pytest.skip("DFlash came with 0.5.12")
    verdicts = [(f.slug, execute(session, ADAPTERS[name], f.case)) for f in CASES]
    taken = [(slug, v) for slug, v in verdicts if v.kind is not Kind.UNSUPPORTED]
    assert [(slug, v) for slug, v in taken if v.kind is not Kind.AGREE] == []
    assert len(taken) >= {"kernel": 40, "eagle": 25, "dflash": 4}[name]
