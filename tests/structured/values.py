"""Values for a mutant's inputs, and whether two results are the same."""
import numpy as np
import onnx

MOST_ELEMENTS = 1 << 24
"""A model with a larger input is not run: a mutant may ask for more than there is memory for."""
NARROW = {"float16": (4e-3, 2e-3), "bfloat16": (3e-2, 1.6e-2), "float64": (1e-4, 1e-6)}
WIDE = (1e-3, 1e-5)
"""Relative to the element, and to the largest element of the result."""


class NotRunnable(Exception):
    """There are no values for this input."""


def inputs_of(mutant, seed, index):
    """For each input that no initializer fills an array, or a list of arrays for a sequence."""
    rng, sizes = np.random.default_rng([seed, index]), {}
    filled = {t.name for t in mutant.graph.initializer}
    return {i.name: fitted(i, mutant.inputs.get(i.name), rng, sizes)
            for i in mutant.graph.input if i.name not in filled}


def fitted(info, known, rng, sizes):
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type" and info.type.sequence_type.elem_type.WhichOneof("value") == "tensor_type":
        tensor = info.type.sequence_type.elem_type.tensor_type
        elements = known if isinstance(known, list) else [None, None]
        return [array_of(tensor, e, rng, sizes) for e in elements]
    if kind != "tensor_type" or isinstance(known, list):
        raise NotRunnable(f"an input of type {kind}")
    return array_of(info.type.tensor_type, known, rng, sizes)


def array_of(tensor, known, rng, sizes):
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    except KeyError:
        raise NotRunnable(f"element type {tensor.elem_type}") from None
    shape = shape_of(tensor, known, rng, sizes)
    if len(shape) > 32 or min(shape, default=0) < 0 or np.prod(shape, dtype=float) > MOST_ELEMENTS:
        raise NotRunnable(f"shape {shape}")
    if known is not None and known.size:
        with np.errstate(all="ignore"):
            return np.resize(known, shape).astype(dtype)
    return made_up(dtype, shape, rng)


def shape_of(tensor, known, rng, sizes):
    if not tensor.HasField("shape"):
        return list(known.shape) if known is not None else [2, 3]
    like = known.shape if known is not None and known.ndim == len(tensor.shape.dim) else None
    shape = []
    for i, dim in enumerate(tensor.shape.dim):
        size = like[i] if like else int(rng.integers(1, 4))
        if dim.HasField("dim_value"):
            size = dim.dim_value
        elif dim.dim_param:
            size = sizes.setdefault(dim.dim_param, size)
        shape.append(size)
    return shape


def made_up(dtype, shape, rng):
    if np.prod([float(extent) for extent in shape]) > MOST_ELEMENTS:
        raise NotRunnable(f"an input of shape {shape}")
    if dtype == object:
        return np.array(rng.choice(["a", "bc", "é", ""], shape), dtype=object)
    if dtype.kind in "iu" or dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "c":
        return rng.standard_normal(shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def flat(values):
    """Sequences become their elements; an optional value that is not there leaves nothing."""
    return [np.asarray(e) for v in values if v is not None for e in (v if isinstance(v, list) else [v])]


def difference(expected, found):
    """None, or in words how two lists of results differ."""
    if len(expected) != len(found):
        return f"{len(found)} results, not {len(expected)}"
    for i, (a, b) in enumerate(zip(expected, found)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {i} is {b.dtype}{list(b.shape)}, not {a.dtype}{list(a.shape)}"
        wrong = ~close(a, b)
        if wrong.any():
            at = tuple(int(k[0]) for k in np.nonzero(np.atleast_1d(wrong)))
            one = (np.atleast_1d(b)[at], np.atleast_1d(a)[at])
            return f"result {i}: {int(wrong.sum())} of {a.size} differ, {list(at)} is {one[0]}, not {one[1]}"
    return None


def is_float(dtype):
    return dtype.kind == "f" or dtype.name in NARROW


def close(a, b):
    if not is_float(a.dtype):
        return np.asarray(a == b)
    rtol, share = NARROW.get(a.dtype.name, WIDE)
    with np.errstate(all="ignore"):
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.abs(a[np.isfinite(a)])
        atol = 1e-7 + share * (float(finite.max()) if finite.size else 0.0)
        return (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= atol + rtol * np.abs(a))


def error(exact, found):
    """The largest error of a list of results, relative to the largest element of each; infinite where one is not
    finite and the other is."""
    if len(exact) != len(found) or any(a.shape != b.shape for a, b in zip(exact, found)):
        return np.inf
    worst = 0.0
    for a, b in zip(exact, found):
        with np.errstate(all="ignore"):
            a, b = a.astype(np.float64), b.astype(np.float64)
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            off = np.where(same, 0.0, np.abs(a - b))
            finite = np.abs(a[np.isfinite(a)])
            scale = max(float(finite.max()) if finite.size else 0.0, 1e-30)
            off = np.where(np.isnan(off), np.inf, off / scale)
        worst = max(worst, float(off.max(initial=0.0)))
    return worst
