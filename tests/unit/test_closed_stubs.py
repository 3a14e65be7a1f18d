"""Closed stubs refuse what nobody granted, in a way that production code cannot swallow unseen."""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import sys

import pytest

from fuzz.engines import closed, shims

PACKAGE = "specoracle_no_such_package"


@pytest.fixture(autouse=True)
def clean():
    closed.take_touches()
    yield
    closed.take_touches()
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_an_attribute_that_nobody_granted_is_loud_even_for_hasattr_and_getattr():
    worker = closed.ClosedStub("worker", page_size=1)
    assert worker.page_size == 1
    with pytest.raises(closed.StubTouched, match="worker has no attribute 'server_args'"):
        hasattr(worker, "server_args")
    with pytest.raises(closed.StubTouched):
        getattr(worker, "server_args", None)
    assert len(closed.take_touches()) == 2


def test_an_attribute_declared_absent_answers_like_a_plain_object():
    worker = closed.ClosedStub("worker", absent=["plan_stream"])
    assert not hasattr(worker, "plan_stream")
    assert getattr(worker, "plan_stream", 7) == 7
    assert closed.take_touches() == ()


def test_production_may_set_and_then_read_its_own_attributes():
    worker = closed.ClosedStub("worker")
    worker.counter = 3
    assert worker.counter == 3


def test_probes_of_the_interpreter_are_no_touches():
    worker = closed.ClosedStub("worker", rows=[1])
    assert copy.deepcopy(worker).rows == [1]
    assert not hasattr(worker, "__torch_function__")
    assert closed.take_touches() == ()


def test_a_touch_swallowed_by_a_broad_except_is_still_known_afterwards():
    module = shims.add_stub_module(PACKAGE, ["top_k"])
    with contextlib.suppress(Exception):  # what production does around its kernels
        module.top_k(1)
    assert closed.take_touches() == (f"{PACKAGE}.top_k is a stub without behaviour and was called",)
    assert closed.take_touches() == ()


def test_a_stub_package_has_the_listed_names_and_a_guarded_import_of_others_falls_back():
    installed = shims.install({f"{PACKAGE}.part": ["known"]}, torchvision=False)
    assert installed == (f"{PACKAGE}.part",)
    part = importlib.import_module(f"{PACKAGE}.part")
    assert callable(part.known)
    with pytest.raises(ImportError) as caught:
        exec(f"from {PACKAGE}.part import other")
    assert isinstance(caught.value, closed.StubTouched)
    with pytest.raises(closed.StubTouched):
        hasattr(part, "other")


def test_code_that_asks_whether_the_package_exists_gets_the_true_answer():
    shims.install({f"{PACKAGE}.part": ["known"]}, torchvision=False)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(PACKAGE)
    assert importlib.util.find_spec(PACKAGE) is None


def test_a_package_that_is_really_there_is_left_alone():
    assert shims.install({"json.decoder": ["scan_once"], "json": ["nothing"]}, torchvision=False) == ()
    import json

    assert not hasattr(json, "nothing")
