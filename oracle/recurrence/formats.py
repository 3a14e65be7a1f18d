"""Rounding into the number formats that engines store and multiply in.

Values stay float64 and merely become representable, so that a reference can say
"stored as bfloat16" without a framework. Round to nearest, ties to even, as every
engine's own conversion does; too large becomes infinite, subnormals are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Format:
    """A binary floating-point format. ``precision``: bits of the significand, the
    leading one included. ``smallest``: exponent of the smallest normal number.
    ``largest``: the largest finite number."""

    precision: int
    smallest: int
    largest: float


FORMATS = {
    "float64": Format(53, -1022, float(np.finfo(np.float64).max)),
    "float32": Format(24, -126, float(np.finfo(np.float32).max)),
    "float16": Format(11, -14, 65504.0),
    "bfloat16": Format(8, -126, float(2.0**127 * (2 - 2.0**-7))),
    # What a tensor core makes of a float32 operand: the range of float32, 11 bits.
    "tfloat32": Format(11, -126, float(2.0**127 * (2 - 2.0**-10))),
}


def unit_roundoff(dtype: str) -> float:
    """Largest relative error of one rounding to nearest: half a unit in the last place."""
    return 2.0 ** -FORMATS[dtype].precision


def smallest_normal(dtype: str) -> float:
    """Below it a stored number keeps fewer bits, or is flushed to zero."""
    return 2.0 ** FORMATS[dtype].smallest


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """``values`` (float64) rounded into ``dtype``, as float64. NaN stays NaN."""
    form = FORMATS[dtype]
    if dtype == "float64":
        return np.asarray(values, np.float64)
    values = np.asarray(values, np.float64)
    _, exponent = np.frexp(values)  # |value| in [2^(e-1), 2^e)
    quantum = np.maximum(exponent - 1, form.smallest) - (form.precision - 1)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.ldexp(np.rint(np.ldexp(values, -quantum)), quantum)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(near) > form.largest, np.copysign(np.inf, values), near)
