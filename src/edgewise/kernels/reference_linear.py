"""The matrix product in NumPy: what the native kernels must compute, up to the rounding of their f32 sums."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

GROUP = 32
_EPS = float(np.finfo(np.float32).eps)


def quantize(x: F32) -> tuple[npt.NDArray[np.int8], F32]:
    """x: f32[T, K], K a multiple of 32 -> codes i8[T, K / 32, 32] and scales f32[T, K / 32], exactly as the kernels do it.

    Scale is max|x| / 127, a code x * (127 / max|x|) rounded half to even. Groups that are zero, or so small that
    127 / max|x| overflows, have scale 0; groups with NaN or infinity have scale NaN; both have codes 0.
    """
    groups = x.reshape(x.shape[0], -1, GROUP)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        largest = np.abs(groups).max(axis=2)
        inverse = (np.float32(127) / largest).astype(np.float32)
        usable = np.isfinite(largest) & np.isfinite(inverse)
        scaled = groups * np.where(usable, inverse, np.float32(0))[:, :, None]
        codes = np.where(usable[:, :, None], np.rint(scaled), 0).astype(np.int8)
        scales = np.where(np.isfinite(largest), np.where(usable, largest / np.float32(127), 0), np.nan)
    return codes, scales.astype(np.float32)


def linear(weight: F32, x: F32, *, quantized: bool) -> F64:
    """x: f32[T, K] times weight: f32[N, K], f64[T, N]; `quantized`: with x rounded to its int8 groups first."""
    values: F64 = x.astype(np.float64)
    if quantized:
        codes, scales = quantize(x)
        rounded: F64 = codes.astype(np.float64) * scales[:, :, None].astype(np.float64)
        values = rounded.reshape(x.shape)
    product: F64 = values @ weight.T.astype(np.float64)
    return product


def error_bound(weight: F32, x: F32, *, quantized: bool) -> F64:
    """How far f32 results may lie from `linear`, f64[T, N].

    Every fma of a chain rounds a partial sum that the sum of |w x| bounds: one fma an element for float weights, two a
    group of 32 for quantised ones, whose product of scales and minimum round as well. There a weight is d * code + m, and
    |d * code| + |m| is at most three times the group's largest weight if |m| is not larger than that.
    """
    bound: F64
    if not quantized:
        bound = (x.shape[1] + 1) * _EPS * linear(np.abs(weight), np.abs(x), quantized=False)
        return bound
    largest = np.abs(weight).reshape(weight.shape[0], -1, GROUP).max(axis=2)
    amplitude = 3 * np.repeat(largest, GROUP, axis=1)
    bound = (2 * x.shape[1] // GROUP + 8) * _EPS * linear(amplitude, np.abs(x), quantized=True)
    return bound
