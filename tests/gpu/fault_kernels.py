"""Kernels that do wrong on purpose. Imported in a worker only."""

import triton
import triton.language as tl

# Triton places its own barriers, so these are CUDA. In the first, one warp reads what the other may not have written.
SOURCES = {
    "race": """
extern "C" __global__ void race(int* out) {
    __shared__ int row[64];
    row[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = row[63 - threadIdx.x];
}
""",
    "divergent_barrier": """
extern "C" __global__ void divergent_barrier(int* out) {
    if (threadIdx.x % 2) __syncthreads();
    out[threadIdx.x] = threadIdx.x;
}
""",
}


@triton.jit
def store(pointer, offset):
    """Write one element at ``offset`` from ``pointer``, wherever that is."""
    tl.store(pointer + offset, 77)


@triton.jit
def load(pointer, offset, found):
    """Read one element at ``offset`` from ``pointer``."""
    tl.store(found, tl.load(pointer + offset))


@triton.jit
def spin(pointer):
    """Wait for a value that nobody writes."""
    while tl.load(pointer, volatile=True) == 0:
        pass


@triton.jit
def store_askew(pointer):
    """Write eight bytes at an odd address."""
    askew = (pointer.to(tl.int64) + 1).to(tl.pointer_type(tl.int64))
    tl.store(askew, 1)
