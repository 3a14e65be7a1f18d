"""FlashInfer's samplers with coins that are known.

The kernels make their coins inside, with cuRAND's Philox generator. They are compiled here from FlashInfer's own,
unchanged sources, but in front of CUDA's headers stand three of the same names whose generator takes the seed for the
address of a row of coins and hands those out one by one. So the code under test is the published code, and only what
it draws is the case's. The build has a name of its own; FlashInfer's cached module is not touched.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any
from unittest import mock

NAME = "sampling_with_known_coins"
HEADERS = {
    "curand.h": "#pragma once\n",
    "curand_philox4x32_x.h": "#pragma once\n",
    "curand_kernel.h": """#pragma once
#include <cuda_runtime.h>

struct curandStatePhilox4_32_10_t {
  const float* next;
};

__device__ __forceinline__ void curand_init(unsigned long long seed, unsigned long long, unsigned long long,
                                            curandStatePhilox4_32_10_t* state) {
  state->next = reinterpret_cast<const float*>(seed);
}

__device__ __forceinline__ float curand_uniform(curandStatePhilox4_32_10_t* state) { return *state->next++; }

__device__ __forceinline__ float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
  float4 four = {state->next[0], state->next[1], state->next[2], state->next[3]};
  state->next += 4;
  return four;
}
""",
}


def write_headers(folder: Path) -> Path:
    """The headers in ``folder``; an unchanged file is left alone, so that nothing is compiled again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in HEADERS.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return folder


@functools.cache
def use(sampling: Any, core: Any, environment: Any) -> None:
    """Make FlashInfer's sampling module (``flashinfer.sampling``) one with known coins, for this process."""
    headers = write_headers(Path(environment.FLASHINFER_JIT_DIR) / f"{NAME}_headers")

    def build() -> Any:
        return core.gen_jit_spec(NAME, published().sources, extra_include_paths=[headers])

    published = sampling.gen_sampling_module
    sampling.get_sampling_module.cache_clear()
    with mock.patch.object(sampling, "gen_sampling_module", build):
        sampling.get_sampling_module()
