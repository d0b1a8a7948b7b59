#!/usr/bin/env python3
"""Which points Winograd's convolutions should interpolate at: the rounding errors of pairs of eighths, simulated.

    winograd_points.py [--window 3] [--outputs 4] [--best 10]

Needs numpy. Points are zero (for an odd number of them), pairs `p` and `-p`, and infinity: then rows of the transforms share
their sums, and coefficients of data are short enough to be exact. Errors as `accuracy.py` measures them, of a small convolution
with normal inputs and with outliers of 1e4, as multiples of those of the direct sum. The best have the least product of both.
`sketch/src/algorithm/toom_cook.rs` has what came of it.
"""

import argparse
import itertools
from fractions import Fraction

import numpy as np

F32 = np.float32


def product_of(roots):
    """Coefficients of the product of all `x - p`, the constant one first."""
    product = [Fraction(1)]
    for p in roots:
        shifted, scaled = [Fraction(0)] + product, [p * c for c in product] + [Fraction(0)]
        product = [a - b for a, b in zip(shifted, scaled)]
    return product


def matrices(points, m, r):
    """`At`, `G` and `Bt` of Toom and Cook, exact."""
    others = [[q for q in points if q != p] for p in points]
    scales = [1 / np.prod([p - q for q in rest]) for p, rest in zip(points, others)]
    data = [product_of(rest) + [Fraction(0)] for rest in others] + [product_of(points)]
    weight = [[s * p**k for k in range(r)] for p, s in zip(points, scales)] + [[0] * (r - 1) + [1]]
    output = [[p**i for p in points] + [int(i == m - 1)] for i in range(m)]
    return [np.array([[float(c) for c in row] for row in rows]) for rows in (output, weight, data)]


def times(matrix, x):
    """Along the first axis, each operation rounded to 32 bits."""
    rows = []
    for row in matrix.astype(F32):
        terms = [v if c == 1 else v * c for c, v in zip(row, x) if c]
        rows.append(sum(terms[1:], terms[0]))
    return np.stack(rows)


def both(matrix, x):
    return np.swapaxes(times(matrix, np.swapaxes(times(matrix, x), 0, 1)), 0, 1)


def accumulated(pairs, shape):
    """The sum of fused products, rounded to 32 bits after each."""
    total = np.zeros(shape, F32)
    for a, b in pairs:
        total = (total + a.astype(np.float64) * b.astype(np.float64)).astype(F32)
    return total


def winograd(x, w, points, m):
    r, (c, size, _), k = w.shape[2], x.shape, w.shape[0]
    n, tiles = m + r - 1, (size - r + 1) // m
    output, weight, data = matrices(points, m, r)
    at = lambda first: slice(first, first + (tiles - 1) * m + 1, m)
    tile = np.stack([np.stack([x[:, at(i), at(j)] for j in range(n)]) for i in range(n)])
    points = both(data, tile).reshape(n, n, c, -1)
    u = np.einsum("ir,kcrs,js->ijck", weight, w.astype(np.float64), weight).astype(F32)
    pairs = ((u[:, :, i, :, None], points[:, :, i, None, :]) for i in range(c))
    y = both(output, accumulated(pairs, (n, n, k, tiles * tiles))).reshape(m, m, k, tiles, tiles)
    return y.transpose(2, 3, 0, 4, 1).reshape(k, tiles * m, tiles * m)


def windows(x, w):
    n = x.shape[1] - w.shape[2] + 1
    for c, i, j in itertools.product(range(x.shape[0]), range(w.shape[2]), range(w.shape[3])):
        yield w[:, c, i, j, None, None], x[None, c, i:i + n, j:j + n]


def case(random, with_outliers, window, outputs):
    x = random.standard_normal((64, 6 * outputs + window - 1, 6 * outputs + window - 1))
    if with_outliers:
        x = np.where(random.random(x.shape) < 1e-3, 1e4 * np.sign(x), x)
    x, w = x.astype(F32), random.standard_normal((8, 64, window, window)).astype(F32)
    wide = [(a.astype(np.float64), b.astype(np.float64)) for a, b in windows(x, w)]
    exact, size = sum(a * b for a, b in wide), sum(np.abs(a * b) for a, b in wide)
    error = lambda y: np.quantile(np.abs(y - exact) / size, 0.99)
    direct = error(accumulated(windows(x, w), exact.shape))
    return lambda points: error(winograd(x, w, points, outputs)) / direct


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=3)
    parser.add_argument("--outputs", type=int, default=4)
    parser.add_argument("--best", type=int, default=10)
    args = parser.parse_args()
    random = np.random.default_rng(0)
    cases = [[case(random, of, args.window, args.outputs) for _ in range(2)] for of in (False, True)]
    judged = lambda points: [float(np.mean([one(points) for one in of])) for of in cases]
    number = args.window + args.outputs - 2
    eighths = [Fraction(n, 8) for n in range(2, 19)]
    zero = [Fraction(0)] * (number % 2)
    found = []
    for pairs in itertools.combinations(eighths, number // 2):
        found.append((pairs, judged(zero + [q for p in pairs for q in (p, -p)])))
    found.sort(key=lambda one: one[1][0] * one[1][1])
    print(f"{'pairs':20} normal  outliers   (times the direct sum's error)")
    for pairs, (normal, outliers) in found[:args.best]:
        print(f"{', '.join(map(str, pairs)):20} {normal:6.2f} {outliers:9.1f}")


if __name__ == "__main__":
    main()
