"""Blocks of compute-sanitizer become reports with kernel, place and what is said of the address."""

from __future__ import annotations

import pytest

from fuzz.sanitizer_log import reports, short, trouble
from tests import sanitizer_blocks as blocks

ADDRESS = "Access is out of bounds and is {} the nearest allocation of size {} bytes"
# block, tool, identity, place, note
BLOCKS = [
    (blocks.WRITE, "memcheck", "memcheck:invalid-global-write:store", "fault_kernels.py:10",
     ADDRESS.format("1 bytes after", "256")),
    (blocks.OLDER_READ, "memcheck", "memcheck:invalid-global-read:fused_moe_kernel", "fused_moe.py:175",
     ADDRESS.format("1,241,911,296 bytes before", "5,033,164,800")),
    (blocks.MISALIGNED, "memcheck", "memcheck:invalid-global-write:ns::store_askew", None,
     "Access is misaligned and is inside the nearest allocation of size 1,024 bytes"),
    (blocks.RACE, "racecheck", "racecheck:race-reported-between-write-access-and-read-access:reverse",
     "race.cu:27 and race.cu:30", None),
    (blocks.HAZARD, "racecheck", "racecheck:potential-waw-hazard-detected:WAW", "raceWAW.cu:20", None),
    (blocks.UNINITIALISED, "initcheck", "initcheck:uninitialized-global-memory-read:add_one", "kernels.py:41", None),
    (blocks.BARRIER, "synccheck", "synccheck:barrier-error-detected-divergent-threads-in-warp:broken_sync",
     "sm_30_intrinsics.hpp:110", None),
]  # fmt: skip


@pytest.mark.parametrize(("block", "tool", "identity", "place", "note"), BLOCKS)
def test_a_block_of_each_tool_is_a_report_that_blames_its_kernel(block, tool, identity, place, note):
    (report,) = reports(blocks.HEAD + block + blocks.API_ERROR + blocks.TAIL)
    assert report.identity(tool) == identity
    assert (report.place, report.note) == (place, note)
    assert report.blames(tool)
    assert report.words(tool).startswith(f"{tool}: {report.kind} in {report.function}")


@pytest.mark.parametrize(
    ("block", "tool"),
    [
        (blocks.RACE_WARNING, "racecheck"),
        (blocks.UNINITIALISED_IN_CUB, "initcheck"),
        (blocks.UNINITIALISED_IN_TORCH, "initcheck"),
        (blocks.UNINITIALISED_COPY, "initcheck"),
    ],
)
def test_warnings_copies_and_the_kernels_of_libraries_blame_nobody(block, tool):
    (report,) = reports(block)
    assert not report.blames(tool)


def test_an_index_outside_reaches_a_kernel_of_torch_through_the_engine():
    inside = blocks.WRITE.replace(
        "at store+0x80 in fault_kernels.py:10", "at void at::native::index_put<int>(int)+0x10"
    )
    (report,) = reports(inside)
    assert report.of_library and report.blames("memcheck")


def test_what_is_not_known_yet_is_a_report_when_it_names_a_kernel():
    (report,) = reports(blocks.UNKNOWN)
    assert report.function == "guardrail_trap" and report.blames("memcheck")
    (remark,) = reports("========= Something new of which nothing is known\n")
    assert remark.function is None and not remark.blames("memcheck")


def test_the_same_said_often_is_one_report():
    other_thread = blocks.WRITE.replace("thread (0,0,0)", "thread (5,0,0)")
    first, second = reports(blocks.HEAD + blocks.WRITE + other_thread + blocks.MISALIGNED)
    assert first.count == 2 and second.count == 1
    assert "said 2 times" in first.words("memcheck")


def test_lines_that_are_not_indented_are_read_alike():
    """As the manual prints them."""
    assert reports(blocks.WRITE.replace("=========     ", "========= "))[0].identity("memcheck") == (
        reports(blocks.WRITE)[0].identity("memcheck")
    )


def test_what_the_application_prints_and_a_block_that_is_cut_break_nothing():
    head = len(blocks.WRITE.splitlines()[0])
    for cut in range(head, len(blocks.WRITE)):
        assert reports("hello\n" + blocks.WRITE[cut:]) == []
        (report,) = reports(blocks.WRITE[cut:] + "\nworld\n" + blocks.WRITE[:cut])
        assert report.kind.startswith("Invalid __global__ write")
    assert reports("= = =\n=====\n") == reports(blocks.HEAD + blocks.TAIL + blocks.RACE_TAIL) == []


def test_a_tool_that_did_not_look_says_so():
    assert trouble(blocks.HEAD + blocks.WRITE + blocks.TAIL) is None
    assert trouble(blocks.HEAD + blocks.NOT_ATTACHED) == (
        "Error: No attachable process found. compute-sanitizer timed-out."
    )


@pytest.mark.parametrize(
    ("full", "name"),
    [
        ("store", "store"),
        ("add(const float *, const float *, float *, int)", "add"),
        ("void block_reverse_kernel<(bool)0>(...)", "block_reverse_kernel"),
        ("deep_ep::internode_ll::dispatch<(bool)0, (int)7168>(...)", "deep_ep::internode_ll::dispatch"),
        ("void (anonymous namespace)::k<int, at::native::f>(int)", "k"),
        ("demo::<unnamed>::saxpy(float, const float *)", "demo::saxpy"),
        ("()", "()"),
    ],
)
def test_the_name_of_a_kernel_is_what_stays_without_arguments(full, name):
    assert short(full) == name
