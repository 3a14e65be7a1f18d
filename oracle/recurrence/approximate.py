"""A number and how far a correct float32 computation of it may be away.

``Approximate`` carries float64 values with an error bound beside each. Every operation adds what float32 rounding may
do and passes the errors of its operands on, so a reference is written once, in plain formulas, and the bound of each
result follows from the numbers of that very case. Nothing is tuned. The rules are those of running error analysis
(Higham, *Accuracy and Stability of Numerical Algorithms*, sections 3.1 and 3.3):

    fl(a op b) = (a op b)(1 + d) + t,   |d| <= u = 2^-24,   |t| <= 2^-126 (results below normal may be flushed)

* A sum of n terms may be taken in any order, by any tree, fused with the products in front of it or not: n roundings
  of partial sums, each at most the sum of magnitudes.
* ``ACCURACY`` declares the elementary functions per device. The bound takes the worst device, because a case does not
  know where it will run.
* ``inputs`` of a dot says what the multiplier is fed: a tensor core may take float32 operands as tfloat32.

What this cannot see: a kernel that computes in float64, or exactly, is held to the same bound and looks very good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.legal import Within
from oracle.recurrence.formats import rounded, smallest_normal, unit_roundoff

U = unit_roundoff("float32")
TINY = smallest_normal("float32")
SECOND_ORDER = 1.0 + 2.0**-10  # products of errors, for sums of up to 2^13 terms

# Relative error in units of U, per device. CPU: NumPy's float32 exp and log (4 ULP at most by its own tests, 1 ULP =
# 2 U) and IEEE division and square root. CUDA: ex2.approx and lg2.approx (2 ULP and 2^-22 absolute around 1, PTX
# manual) with the multiplication in front of or behind them; div.full 2 ULP; rsqrt.approx 2^-22.9; sqrt.approx 2^-23.
ACCURACY = {
    "cpu": {"exp": 8, "log": 8, "log_near_one": 0, "divide": 1, "rsqrt": 2, "sqrt": 1},
    "cuda": {"exp": 6, "log": 8, "log_near_one": 4, "divide": 4, "rsqrt": 4, "sqrt": 4},
}
WORST = {name: max(row[name] for row in ACCURACY.values()) * U for name in ACCURACY["cpu"]}


@dataclass(frozen=True)
class Approximate:
    """``value`` and ``error``: float64 arrays of one shape; |computed - value| <= error."""

    value: np.ndarray
    error: np.ndarray

    def legal(self) -> Within:
        """What may be observed of these numbers."""
        return Within(self.value, self.error)

    @property
    def magnitude(self) -> np.ndarray:
        """The largest absolute value that a computation may hold."""
        return np.abs(self.value) + self.error

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def __getitem__(self, key: Any) -> Approximate:
        return Approximate(self.value[key], self.error[key])

    def __neg__(self) -> Approximate:
        return Approximate(-self.value, self.error)

    def __add__(self, other: Any) -> Approximate:
        other = exact(other)
        return _computed(self.value + other.value, self.error + other.error)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Approximate:
        return self + -exact(other)

    def __rsub__(self, other: Any) -> Approximate:
        return exact(other) + -self

    def __mul__(self, other: Any) -> Approximate:
        other = exact(other)
        return _computed(self.value * other.value, _product_error(self, other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Approximate:
        other = exact(other)
        value = self.value / other.value
        lowest = np.abs(other.value) - other.error
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(lowest > 0, (self.error + np.abs(value) * other.error) / lowest, np.inf)
        return _computed(value, error, WORST["divide"])

    def __rtruediv__(self, other: Any) -> Approximate:
        return exact(other) / self

    def reshape(self, *shape: int) -> Approximate:
        return Approximate(self.value.reshape(*shape), self.error.reshape(*shape))

    def transpose(self, *axes: int) -> Approximate:
        return Approximate(self.value.transpose(*axes), self.error.transpose(*axes))

    def repeat(self, count: int, axis: int) -> Approximate:
        return Approximate(self.value.repeat(count, axis), self.error.repeat(count, axis))

    def sum(self, axis: int = -1) -> Approximate:
        """The sum along ``axis``, in any order."""
        return _summed(self.value, self.error, self.magnitude, axis)

    def exp(self) -> Approximate:
        """e^x. The argument is scaled by log2(e) first on a GPU: its rounding is |x| U more."""
        value = np.exp(self.value)
        return _computed(value, value * np.expm1(self.error), WORST["exp"] + self.magnitude * 2 * U)

    def log(self) -> Approximate:
        value = np.log(self.value)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(self.value > self.error, -np.log1p(-self.error / self.value), np.inf)
        return _computed(value, error + WORST["log_near_one"], WORST["log"])

    def sqrt(self) -> Approximate:
        value = np.sqrt(self.value)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(self.error < self.value, value - np.sqrt(self.value - self.error), np.sqrt(self.magnitude))
        return _computed(value, error, WORST["sqrt"])

    def rsqrt(self) -> Approximate:
        """1 / sqrt(x); x must be away from 0."""
        value = 1.0 / np.sqrt(self.value)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(self.error < self.value, 1.0 / np.sqrt(self.value - self.error) - value, np.inf)
        return _computed(value, error, WORST["rsqrt"])

    def sigmoid(self) -> Approximate:
        """1 / (1 + e^-x)."""
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + (-self).exp())

    def silu(self) -> Approximate:
        """x / (1 + e^-x)."""
        with np.errstate(over="ignore"):
            return self / (1.0 + (-self).exp())

    def softplus(self, threshold: float = 20.0) -> Approximate:
        """log(1 + e^x), and x itself above ``threshold``. At the threshold the two differ by e^-threshold."""
        low = (1.0 + Approximate(np.minimum(self.value, threshold), self.error).exp()).log()
        value = np.where(self.value > threshold, self.value, low.value)
        edge = np.exp(-threshold) * (np.abs(self.value - threshold) <= self.error)
        return Approximate(value, np.where(self.value > threshold, self.error, low.error) + edge)

    def stored(self, dtype: str) -> Approximate:
        """After a rounding into ``dtype``; nothing for float32, in which it was computed.

        The exact value stays the reference: a computation that is off by ``error`` may round to the other side.
        """
        if dtype == "float32":
            return self
        rounding = self.magnitude * unit_roundoff(dtype) + smallest_normal(dtype) * 2 * unit_roundoff(dtype)
        safe = (self.error == 0) & (rounded(self.value, dtype) == self.value)
        return Approximate(self.value, np.where(safe, 0.0, self.error + rounding))


def exact(values: Any) -> Approximate:
    """Numbers without an error: inputs as they are stored."""
    if isinstance(values, Approximate):
        return values
    values = np.asarray(values, np.float64)
    return Approximate(values, np.zeros_like(values))


def stack(parts: list[Approximate], axis: int = 0) -> Approximate:
    """Several of one shape, along a new axis."""
    return Approximate(np.stack([p.value for p in parts], axis), np.stack([p.error for p in parts], axis))


def concatenate(parts: list[Approximate], axis: int = 0) -> Approximate:
    """Several, along an axis that they have."""
    return Approximate(np.concatenate([p.value for p in parts], axis), np.concatenate([p.error for p in parts], axis))


def where(condition: np.ndarray, first: Any, second: Any) -> Approximate:
    """``first`` where the (exact) condition holds, else ``second``."""
    a, b = exact(first), exact(second)
    return Approximate(np.where(condition, a.value, b.value), np.where(condition, a.error, b.error))


def dot(a: Any, b: Any, axis: int = -1, inputs: str = "float32") -> Approximate:
    """Sum of products along ``axis`` (broadcast first), fused or not, in any order.

    ``inputs``: the format in which the multiplier may take its operands.
    """
    a, b = exact(a), exact(b)
    if inputs != "float32":
        u = unit_roundoff(inputs)
        a = Approximate(a.value, a.error + a.magnitude * 2 * u)  # hardware may truncate: twice the rounding
        b = Approximate(b.value, b.error + b.magnitude * 2 * u)
    value, error = a.value * b.value, _product_error(a, b)
    magnitude = np.abs(value) + error
    return _summed(value, error + magnitude * U + _flushed(value, error), magnitude, axis)


def _product_error(a: Approximate, b: Approximate) -> np.ndarray:
    return np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error


def _summed(value: np.ndarray, error: np.ndarray, magnitude: np.ndarray, axis: int) -> Approximate:
    """A sum of n terms has n - 1 roundings, each at most U times the sum of magnitudes."""
    roundings = max(value.shape[axis] - 1, 0) * U * SECOND_ORDER
    total = value.sum(axis)
    return Approximate(total, error.sum(axis) + roundings * magnitude.sum(axis))


def _computed(value: np.ndarray, error: np.ndarray, relative: Any = U) -> Approximate:
    """The result of one operation whose own relative error is ``relative``."""
    with np.errstate(invalid="ignore"):
        return Approximate(value, error + relative * (np.abs(value) + error) + _flushed(value, error))


def _flushed(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """What flushing a result below the normal range may cost; nothing for an exact 0."""
    return np.where((value == 0) & (error == 0), 0.0, TINY)
