"""The cost of compiling random operators: processor seconds and bytes of code, the worst first. Or the slowest kernel of networks.

    compile_cost.py ANSC [--seed 1] [--n 300] [--families conv,pool,..] [--seconds 2] [--kilobytes 512] [--out FILE.jsonl]
                    [-- ARGUMENTS OF `ansc compile`]
    compile_cost.py ANSC --networks all|NAME,.. [--seconds 1] [-- ARGUMENTS OF `ansc compile`]

Needs a Python with numpy and onnx. Shapes are drawn to provoke: odd rests, long axes, high ranks, large windows, long
chains, every element type. Ends with 1 if a model takes more than the limits or fails in another way than by a refusal.
Networks are those of `ansc models`, compiled on one thread; the limit is that of one kernel, its schedule and its code together.
"""
import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto as T, helper as H, numpy_helper as N

FLOATS = (np.float32, np.float32, np.float32, np.float16, np.float64)
TYPES = FLOATS + (np.int8, np.uint8, np.int32, np.int64, np.bool_)
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 15, 16, 17, 21, 31, 32, 33, 50, 63, 64, 65, 100, 127, 128, 197, 224, 255, 256, 511, 512)


class Draw:
    """Random models of one seed."""

    def __init__(self, seed):
        self.r = np.random.default_rng(seed)

    def pick(self, *of):
        return of[self.r.integers(len(of))]

    def chance(self, p):
        return self.r.random() < p

    def shape(self, least=2, most=6, low=1e3, high=4e6, sizes=SIZES):
        while True:
            rank = self.r.integers(least, most + 1)
            s = [int(self.pick(*sizes)) for _ in range(rank)]
            if low <= math.prod(s) <= high:
                return s

    def data(self, dtype, *shape):
        x = self.r.standard_normal(shape)
        if dtype == np.bool_:
            return x > 0
        if np.issubdtype(dtype, np.integer):
            return np.abs(x * 20).clip(0, 100).astype(dtype)
        return x.astype(dtype)

    def f32(self, *shape):
        return self.data(np.float32, *shape)

    # One family each: nodes, inputs as (name, type, shape), constants, a description.

    def transpose(self):
        dtype = self.pick(*TYPES)
        if self.chance(.4):
            c, h, w = (int(self.r.integers(2, n)) for n in (80, 400, 400))
            s, p = [1, h, w, c], [0, 3, 1, 2]
            if self.chance(.3):
                s, p = [1, c, h, w], [0, 2, 3, 1]
        else:
            s = self.shape(2, 7, high=8e6)
            p = self.r.permutation(len(s)).tolist()
        return [H.make_node('Transpose', ['x'], ['y'], perm=p)], [('x', dtype, s)], {}, f'{dtype.__name__} {s} {p}'

    def transposed_chain(self):
        s = self.shape(3, 5, high=4e6)
        p = self.r.permutation(len(s)).tolist()
        t = [s[i] for i in p]
        nodes = [H.make_node('Transpose', ['x'], ['t'], perm=p), H.make_node('Add', ['t', 'z'], ['u']),
                 H.make_node(self.pick('Sigmoid', 'Relu', 'Erf', 'Exp'), ['u'], ['v']), H.make_node('Mul', ['v', 't'], ['y'])]
        return nodes, [('x', np.float32, s), ('z', np.float32, t)], {}, f'{s} {p}'

    def softmax(self):
        if self.chance(.4):
            n = int(self.pick(1000, 4097, 30011, 128257, 200003))
            s = [int(self.pick(1, 2, 7, 16)), n]
        else:
            s = self.shape(1, 6)
        axis, op, dtype = int(self.r.integers(len(s))), self.pick('Softmax', 'LogSoftmax', 'Hardmax'), self.pick(*FLOATS)
        return [H.make_node(op, ['x'], ['y'], axis=axis)], [('x', dtype, s)], {}, f'{op} {dtype.__name__} {s} axis {axis}'

    def norm(self):
        s = self.shape(3, 5)
        op, c = self.pick('LayerNormalization', 'InstanceNormalization', 'GroupNormalization', 'LRN', 'MeanVarianceNormalization', 'LpNormalization'), s[1]
        k, nodes = {}, None
        if op == 'LayerNormalization':
            axis = int(self.r.integers(1, len(s)))
            k = {'g': self.f32(*s[axis:]), 'b': self.f32(*s[axis:])}
            nodes = [H.make_node(op, ['x', 'g', 'b'], ['y'], axis=axis)]
        elif op == 'InstanceNormalization':
            k = {'g': self.f32(c), 'b': self.f32(c)}
            nodes = [H.make_node(op, ['x', 'g', 'b'], ['y'])]
        elif op == 'GroupNormalization':
            g = int(self.pick(*[d for d in range(1, c + 1) if c % d == 0]))
            k = {'g': self.f32(g), 'b': self.f32(g)}
            nodes = [H.make_node(op, ['x', 'g', 'b'], ['y'], num_groups=g)]
        elif op == 'LRN':
            nodes = [H.make_node(op, ['x'], ['y'], size=int(self.pick(1, 3, 5, 9, 31)))]
        elif op == 'MeanVarianceNormalization':
            axes = sorted(self.r.choice(len(s), self.r.integers(1, len(s) + 1), replace=False).tolist())
            nodes = [H.make_node(op, ['x'], ['y'], axes=axes)]
        else:
            nodes = [H.make_node(op, ['x'], ['y'], axis=int(self.r.integers(len(s))), p=int(self.pick(1, 2)))]
        return nodes, [('x', np.float32, s)], k, f'{op} {s}'

    def reduce(self):
        s = self.shape(1, 7) if self.chance(.8) else [int(self.pick(3, 17)), int(self.pick(50021, 131072, 100003))]
        op = self.pick('ReduceSum', 'ReduceMean', 'ReduceMax', 'ReduceMin', 'ReduceL1', 'ReduceL2', 'ReduceProd', 'ReduceLogSumExp', 'ReduceSumSquare', 'ArgMax', 'ArgMin')
        dtype = self.pick(*FLOATS)
        if op.startswith('Arg'):
            axis = int(self.r.integers(len(s)))
            return [H.make_node(op, ['x'], ['y'], axis=axis, keepdims=int(self.r.integers(2)))], [('x', dtype, s)], {}, f'{op} {s} {axis}'
        axes = sorted(self.r.choice(len(s), self.r.integers(1, len(s) + 1), replace=False).tolist())
        node = H.make_node(op, ['x', 'a'], ['y'], keepdims=int(self.r.integers(2)))
        return [node], [('x', dtype, s)], {'a': np.array(axes, np.int64)}, f'{op} {dtype.__name__} {s} {axes}'

    def concat(self):
        n, s = int(self.pick(2, 3, 8, 33, 64, 100)), self.shape(1, 5, high=2e5)
        axis, dtype = int(self.r.integers(len(s))), self.pick(*TYPES)
        parts = [[d if j != axis else int(self.pick(1, 2, 3, 5, 8, 17, 31)) for j, d in enumerate(s)] for _ in range(n)]
        ins = [(f'x{i}', dtype, p) for i, p in enumerate(parts)]
        return [H.make_node('Concat', [i[0] for i in ins], ['y'], axis=axis)], ins, {}, f'{n} of {dtype.__name__} {s} axis {axis}'

    def split(self):
        n, s = int(self.pick(2, 3, 8, 33, 64)), self.shape(1, 5, high=2e5)
        axis = int(self.r.integers(len(s)))
        sizes = [int(self.pick(1, 2, 3, 5, 8, 17)) for _ in range(n)]
        s[axis] = sum(sizes)
        parts = [f'p{i}' for i in range(n)]
        nodes = [H.make_node('Split', ['x', 'n'], parts, axis=axis), H.make_node('Concat', parts[::-1], ['c'], axis=axis),
                 H.make_node('Relu', ['c'], ['y'])]
        return nodes, [('x', np.float32, s)], {'n': np.array(sizes, np.int64)}, f'{n} of {s} axis {axis}'

    def conv(self):
        while True:
            nd, dtype = int(self.pick(1, 2, 2, 2, 3)), self.pick(np.float32, np.float32, np.float32, np.float16, np.float64)
            c, o = (int(self.pick(1, 2, 3, 4, 5, 7, 8, 16, 17, 20, 21, 31, 32, 40, 58, 64, 65, 96, 116, 128, 255)) for _ in range(2))
            kind, g = self.pick('plain', 'plain', 'depthwise', 'grouped', 'transposed'), 1
            if kind == 'depthwise':
                g, o = c, c * int(self.pick(1, 1, 2, 3))
            elif kind == 'grouped':
                g = int(self.pick(2, 3, 4, 5, 8))
                c, o = g * max(1, c // g), g * max(1, o // g)
            large = self.chance(.5)
            k = [int(self.pick(11, 13, 15, 21, 31) if large else self.pick(1, 2, 3, 3, 4, 5, 6, 7, 9)) for _ in range(nd)]
            if nd > 1 and self.chance(.6):
                k = [k[0]] * nd
            s = [int(self.pick(1, 1, 1, 2, 2, 3, 4, 5, 8)) for _ in range(nd)]
            if self.chance(.7):
                s = [s[0]] * nd
            d = [int(self.pick(1, 1, 1, 2, 3))] * nd
            x = [int(self.pick(1, 5, 7, 9, 14, 17, 28, 31, 35, 56, 63, 64, 80, 112)) for _ in range(nd)]
            p = [int(self.r.integers(0, kk * dd)) for kk, dd in zip(k, d)]
            if kind == 'transposed':
                d, p = [1] * nd, [min(q, kk - 1) for q, kk in zip(p, k)]
            elif any(n + 2 * q < (kk - 1) * dd + 1 for n, q, kk, dd in zip(x, p, k, d)):
                continue
            work = math.prod(x) * c * o // g * math.prod(k)
            if 1e3 < work < 4e8 and math.prod(x) * max(c, o) * (math.prod(s) if kind == 'transposed' else 1) < 1e7:
                break
        w = self.data(dtype, *((c, o // g) if kind == 'transposed' else (o, c // g)), *k)
        act = self.pick(None, 'Relu', 'Sigmoid', 'HardSwish', 'Tanh', 'Erf')
        node = H.make_node('ConvTranspose' if kind == 'transposed' else 'Conv', ['x', 'w', 'b'], ['c' if act else 'y'], kernel_shape=k, strides=s, dilations=d, pads=p + p, group=g)
        nodes = [node] + ([H.make_node(act, ['c'], ['y'])] if act else [])
        consts = {'w': w, 'b': self.data(dtype, o)}
        ins = [('x', dtype, [int(self.pick(1, 1, 2, 4)), c] + x)]
        if self.chance(.15):
            ins.append(('w', dtype, list(consts.pop('w').shape)))
        return nodes, ins, consts, f'{kind} {dtype.__name__} {ins[0][2]} to {o}, k {k} s {s} d {d} p {p} g {g} {act} {"" if len(ins) == 1 else "free weights"}'

    def pool(self):
        while True:
            nd = int(self.pick(1, 2, 2, 3))
            c, x = int(self.pick(1, 3, 16, 17, 64, 65)), [int(self.pick(5, 7, 17, 28, 31, 56, 63, 112)) for _ in range(nd)]
            k = [int(self.pick(2, 3, 5, 7, 11, 15, 31)) for _ in range(nd)]
            s, p = [int(self.pick(1, 2, 3, 5)) for _ in range(nd)], [int(self.r.integers(0, (kk + 1) // 2)) for kk in k]
            if all(n + 2 * q >= kk for n, q, kk in zip(x, p, k)) and c * math.prod(x) < 1e6:
                break
        op, dtype = self.pick('MaxPool', 'AveragePool', 'LpPool'), self.pick(np.float32, np.float32, np.float16)
        more = {'ceil_mode': int(self.r.integers(2))} if op != 'LpPool' else {}
        if op == 'AveragePool':
            more['count_include_pad'] = int(self.r.integers(2))
        return [H.make_node(op, ['x'], ['y'], kernel_shape=k, strides=s, pads=p + p, **more)], [('x', dtype, [1, c] + x)], {}, f'{op} {dtype.__name__} {[1, c] + x} k {k} s {s} p {p} {more}'

    def matmul(self):
        sizes = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 65, 100, 127, 128, 200, 255, 511, 513)
        dtype = self.pick(np.float32, np.float32, np.float16, np.float64)
        while True:
            m, k, n = (int(self.pick(*sizes)) for _ in range(3))
            b = [int(self.pick(1, 2, 3, 12)) for _ in range(self.r.integers(0, 3))]
            if math.prod(b) * m * k * n < 1e8:
                break
        nodes = [H.make_node('MatMul', ['x', 'w'], ['a'])]
        after = self.pick('none', 'softmax', 'gelu', 'transpose')
        if after == 'softmax':
            nodes.append(H.make_node('Softmax', ['a'], ['y'], axis=-1))
        elif after == 'gelu':
            nodes += [H.make_node('Erf', ['a'], ['e']), H.make_node('Mul', ['a', 'e'], ['y'])]
        elif after == 'transpose':
            nodes.append(H.make_node('Transpose', ['a'], ['y'], perm=self.r.permutation(len(b) + 2).tolist()))
        else:
            nodes.append(H.make_node('Relu', ['a'], ['y']))
        w, ins = self.data(dtype, *b, k, n), [('x', dtype, b + [m, k])]
        consts = {'w': w} if self.chance(.5) else {}
        return nodes, ins + ([] if consts else [('w', dtype, b + [k, n])]), consts, f'{dtype.__name__} {b} {m} x {k} x {n} {after} {"constant" if consts else ""}'

    def attention(self):
        b, h, n, m, d = int(self.pick(1, 2)), int(self.pick(1, 3, 12)), int(self.pick(1, 17, 64, 197, 512)), int(self.pick(17, 77, 256, 513)), int(self.pick(8, 33, 64, 80))
        nodes = [H.make_node('Transpose', ['k'], ['t'], perm=[0, 1, 3, 2]), H.make_node('MatMul', ['q', 't'], ['s']), H.make_node('Mul', ['s', 'f'], ['u']),
                 H.make_node('Add', ['u', 'mask'], ['w']), H.make_node('Softmax', ['w'], ['p'], axis=-1), H.make_node('MatMul', ['p', 'v'], ['o']),
                 H.make_node('Transpose', ['o'], ['r'], perm=[0, 2, 1, 3]), H.make_node('Reshape', ['r', 'shape'], ['y'])]
        ins = [('q', np.float32, [b, h, n, d]), ('k', np.float32, [b, h, m, d]), ('v', np.float32, [b, h, m, d]), ('mask', np.float32, [b, 1, n, m])]
        return nodes, ins, {'f': np.float32(d ** -.5), 'shape': np.array([b, n, h * d])}, f'{b} x {h}, {n} of {m}, {d}'

    def einsum(self):
        letters = 'abcdef'
        while True:
            size = {x: int(self.pick(1, 2, 3, 5, 8, 13, 16, 17, 32, 33)) for x in letters}
            a, b = (''.join(self.r.permutation(list(letters))[:self.r.integers(1, 5)]) for _ in range(2))
            both = sorted(set(a + b))
            out = ''.join(self.r.permutation(both)[:self.r.integers(0, len(both) + 1)])
            if math.prod(size[x] for x in both) < 1e7:
                break
        eq = f'{a},{b}->{out}'
        return [H.make_node('Einsum', ['x', 'z'], ['y'], equation=eq)], [('x', np.float32, [size[i] for i in a]), ('z', np.float32, [size[i] for i in b])], {}, f'{eq} {size}'

    def chain(self):
        n, s, dtype = int(self.pick(20, 60, 100, 150)), self.shape(1, 5, high=2e5), self.pick(*FLOATS)
        live, nodes = ['x', 'z'], []
        for i in range(n):
            a = live[-1] if self.chance(.7) else self.pick(*live)
            op = self.pick('Add', 'Mul', 'Sub', 'Max', 'Min', 'Tanh', 'Sigmoid', 'Relu', 'Abs', 'Exp', 'Erf', 'Where', 'Neg', 'Softplus', 'Transpose')
            if op in ('Add', 'Mul', 'Sub', 'Max', 'Min'):
                nodes.append(H.make_node(op, [a, self.pick(*live[-8:])], [f'v{i}']))
            elif op == 'Where':
                nodes += [H.make_node('Less', [a, self.pick(*live[-8:])], [f'c{i}']), H.make_node('Where', [f'c{i}', a, self.pick(*live)], [f'v{i}'])]
            elif op == 'Transpose':
                if len(s) < 2 or s[-1] != s[-2]:
                    continue
                nodes.append(H.make_node(op, [a], [f'v{i}'], perm=list(range(len(s) - 2)) + [len(s) - 1, len(s) - 2]))
            else:
                nodes.append(H.make_node(op, [a], [f'v{i}']))
            live.append(f'v{i}')
        nodes.append(H.make_node('Identity', [live[-1]], ['y']))
        t = [d if self.chance(.7) else 1 for d in s]
        return nodes, [('x', dtype, s), ('z', dtype, t)], {}, f'{n} of {dtype.__name__} {s} with {t}'

    def doubling(self):
        n, s = int(self.pick(5, 10, 20, 40)), self.shape(1, 4, high=1e5)
        nodes, last = [], 'x'
        for i in range(n):
            nodes += [H.make_node(self.pick('Tanh', 'Neg', 'Abs', 'Sigmoid'), [last], [f'u{i}']), H.make_node(self.pick('Add', 'Mul', 'Max'), [last, f'u{i}'], [f'v{i}'])]
            last = f'v{i}'
        nodes.append(H.make_node(self.pick('Relu', 'Softmax'), [last], ['y']))
        return nodes, [('x', np.float32, s)], {}, f'{n} times {s}'

    def shifted(self):
        """Maps of shifted copies of themselves: stages that inline into one another many times."""
        n, w = int(self.pick(2, 4, 6, 10)), int(self.pick(100, 1000, 5000))
        nodes, last, width, k = [], 'x', w, {}
        for i in range(n):
            k |= {f'a{i}': np.array([0]), f'b{i}': np.array([1]), f'e{i}': np.array([width - 1]), f'f{i}': np.array([width]), 'axis': np.array([1])}
            nodes += [H.make_node('Slice', [last, f'a{i}', f'e{i}', 'axis'], [f'l{i}']), H.make_node('Slice', [last, f'b{i}', f'f{i}', 'axis'], [f'r{i}']),
                      H.make_node(self.pick('Add', 'Mul', 'Max'), [f'l{i}', f'r{i}'], [f'v{i}'])]
            last, width = f'v{i}', width - 1
        nodes.append(H.make_node('Relu', [last], ['y']))
        return nodes, [('x', np.float32, [3, w])], k, f'{n} shifts of {w}'

    def types(self):
        a, b, s = self.pick(*TYPES), self.pick(*TYPES), self.shape(1, 5, high=5e5)
        code = H.np_dtype_to_tensor_dtype(np.dtype(b))
        nodes = [H.make_node('Cast', ['x'], ['t'], to=code)]
        if b == np.bool_:
            nodes.append(H.make_node('Not', ['t'], ['y']))
        else:
            nodes += [H.make_node(self.pick('Add', 'Mul', 'Sub', 'Max', 'Div', 'Mod') if not np.issubdtype(b, np.floating) else self.pick('Add', 'Div', 'Pow'), ['t', 'z'], ['y'])]
        ins = [('x', a, s)] + ([('z', b, [d if self.chance(.7) else 1 for d in s])] if b != np.bool_ else [])
        return nodes, ins, {}, f'{a.__name__} to {b.__name__} {s}'

    def function(self):
        op, dtype, s = self.pick('Sin', 'Cos', 'Tan', 'Asin', 'Acos', 'Atan', 'Sinh', 'Cosh', 'Asinh', 'Acosh', 'Atanh', 'Exp', 'Log', 'Erf', 'Gelu', 'Mish', 'Softplus', 'Elu', 'Selu', 'Celu', 'HardSigmoid', 'Sqrt', 'Reciprocal', 'Sign', 'Round', 'ThresholdedRelu'), self.pick(*FLOATS), self.shape(1, 5, high=5e5)
        return [H.make_node(op, ['x'], ['y'])], [('x', dtype, s)], {}, f'{op} {dtype.__name__} {s}'

    def quantised(self):
        c, o, k, x = int(self.pick(3, 16, 17, 64, 100)), int(self.pick(8, 17, 32, 65)), int(self.pick(1, 3, 5, 7)), int(self.pick(7, 14, 31, 56))
        x = max(x, k)
        a, w = self.pick(np.int8, np.uint8), self.pick(np.int8, np.uint8)
        if self.chance(.5):
            m = int(self.pick(1, 17, 64, 129))
            nodes = [H.make_node('MatMulInteger', ['x', 'w', 'xz', 'wz'], ['y'])]
            return nodes, [('x', a, [m, c])], {'w': self.data(w, c, o), 'xz': np.array(3, a), 'wz': np.array(2, w)}, f'MatMulInteger {m} x {c} x {o}'
        consts = {'xs': np.float32(.1), 'xz': np.array(3, a), 'w': self.data(w, o, c, k, k), 'ws': np.float32(.2), 'wz': np.array(0, w), 'ys': np.float32(.3), 'yz': np.array(5, a)}
        nodes = [H.make_node('QLinearConv', ['x', 'xs', 'xz', 'w', 'ws', 'wz', 'ys', 'yz'], ['y'], pads=[k // 2] * 4, strides=[int(self.pick(1, 2))] * 2)]
        return nodes, [('x', a, [1, c, x, x])], consts, f'QLinearConv {a.__name__} {w.__name__} {[1, c, x, x]} to {o} k {k}'

    def resize(self):
        nd = int(self.pick(1, 2, 2, 2, 3))
        mode = self.pick('nearest', 'linear', 'cubic') if nd < 3 else self.pick('nearest', 'linear')
        while True:
            c, x, to = int(self.pick(1, 3, 16, 17, 64)), [int(self.pick(3, 7, 14, 17, 32, 63)) for _ in range(nd)], [int(self.pick(1, 5, 14, 28, 33, 64, 100, 127)) for _ in range(nd)]
            if c * math.prod(to) < 1e6 and c * math.prod(x) < 1e6:
                break
        how = self.pick('half_pixel', 'align_corners', 'asymmetric', 'pytorch_half_pixel', 'half_pixel_symmetric')
        anti = int(mode != 'nearest' and self.chance(.3))
        node = H.make_node('Resize', ['x', '', '', 's'], ['y'], mode=mode, coordinate_transformation_mode=how, antialias=anti)
        return [node], [('x', np.float32, [1, c] + x)], {'s': np.array([1, c] + to)}, f'{mode} {how} {[1, c] + x} to {to} antialias {anti}'

    def sampled(self):
        op, c, x, k = self.pick('grid', 'grid', 'deform', 'roi'), int(self.pick(1, 3, 16, 20)), int(self.pick(7, 16, 31, 64)), int(self.pick(1, 3, 5))
        if op == 'grid':
            nd, o = int(self.pick(2, 2, 3)), int(self.pick(5, 16, 33))
            mode = self.pick('linear', 'nearest', 'cubic') if nd == 2 else self.pick('linear', 'nearest')
            nodes = [H.make_node('GridSample', ['x', 'g'], ['y'], mode=mode, padding_mode=self.pick('zeros', 'border', 'reflection'), align_corners=int(self.r.integers(2)))]
            x = min(x, 31) if nd == 3 else x
            return nodes, [('x', np.float32, [1, c] + [x] * nd), ('g', np.float32, [1] + [o] * nd + [nd])], {}, f'GridSample {mode} {nd}d {c} {x} to {o}'
        if op == 'roi':
            nodes = [H.make_node('RoiAlign', ['x', 'r', 'b'], ['y'], output_height=int(self.pick(1, 7, 14)), output_width=int(self.pick(1, 7, 14)), sampling_ratio=int(self.pick(0, 1, 2, 4)), mode=self.pick('avg', 'max'))]
            n = int(self.pick(1, 5, 100))
            return nodes, [('x', np.float32, [1, c, x, x]), ('r', np.float32, [n, 4])], {'b': np.zeros(n, np.int64)}, f'RoiAlign {c} {x} {n}'
        x, o, p = max(x, k), int(self.pick(4, 17)), k // 2
        nodes = [H.make_node('DeformConv', ['x', 'w', 'o', 'b', 'm'], ['y'], kernel_shape=[k, k], pads=[p] * 4)]
        ins = [('x', np.float32, [1, c, x, x]), ('o', np.float32, [1, 2 * k * k, x, x]), ('m', np.float32, [1, k * k, x, x])]
        return nodes, ins, {'w': self.f32(o, c, k, k), 'b': self.f32(o)}, f'DeformConv {c} {x} to {o} k {k}'

    def recurrent(self):
        op, t, b, i, h, d = self.pick('LSTM', 'GRU', 'RNN'), int(self.pick(1, 5, 50)), int(self.pick(1, 3, 17)), int(self.pick(1, 17, 128)), int(self.pick(1, 20, 65, 256)), int(self.pick(1, 2))
        g = {'LSTM': 4, 'GRU': 3, 'RNN': 1}[op]
        node = H.make_node(op, ['x', 'w', 'r', 'b'], ['y'], hidden_size=h, direction='bidirectional' if d == 2 else 'forward')
        return [node], [('x', np.float32, [t, b, i])], {'w': self.f32(d, g * h, i), 'r': self.f32(d, g * h, h), 'b': self.f32(d, 2 * g * h)}, f'{op} {t} {b} {i} {h} {d}'

    def indexed(self):
        s, op = self.shape(2, 5, high=1e6), self.pick('Gather', 'GatherND', 'GatherElements', 'ScatterND', 'ScatterElements', 'OneHot', 'Trilu', 'CumSum', 'TopK', 'EyeLike')
        x = ('x', np.float32, s)
        axis = int(self.r.integers(len(s)))
        if op == 'Gather':
            return [H.make_node(op, ['x', 'i'], ['y'], axis=axis)], [x, ('i', np.int64, [int(self.pick(1, 7, 64)), int(self.pick(1, 3))])], {}, f'{op} {s} {axis}'
        if op == 'GatherND':
            k = int(self.r.integers(1, len(s) + 1))
            return [H.make_node(op, ['x', 'i'], ['y'])], [x, ('i', np.int64, [int(self.pick(1, 33, 500)), k])], {}, f'{op} {s} {k}'
        if op == 'GatherElements':
            return [H.make_node(op, ['x', 'i'], ['y'], axis=axis)], [x, ('i', np.int64, s)], {}, f'{op} {s} {axis}'
        if op == 'ScatterND':
            k, n = int(self.r.integers(1, len(s) + 1)), int(self.pick(1, 33, 100))
            return [H.make_node(op, ['x', 'i', 'u'], ['y'])], [x, ('i', np.int64, [n, k]), ('u', np.float32, [n] + s[k:])], {}, f'{op} {s} {k}'
        if op == 'ScatterElements':
            return [H.make_node(op, ['x', 'i', 'u'], ['y'], axis=axis)], [x, ('i', np.int64, s), ('u', np.float32, s)], {}, f'{op} {s} {axis}'
        if op == 'OneHot':
            return [H.make_node(op, ['i', 'd', 'v'], ['y'], axis=-1)], [('i', np.int64, s[:2])], {'d': np.array(int(self.pick(3, 10, 100))), 'v': self.f32(2)}, f'{op} {s[:2]}'
        if op == 'TopK':
            return [H.make_node(op, ['x', 'k'], ['y', 'j'], axis=axis)], [x], {'k': np.array([min(3, s[axis])])}, f'{op} {s} {axis}'
        if op == 'CumSum':
            return [H.make_node(op, ['x', 'a'], ['y'], reverse=int(self.r.integers(2)), exclusive=int(self.r.integers(2)))], [x], {'a': np.array(axis)}, f'{op} {s} {axis}'
        if op == 'EyeLike':
            return [H.make_node(op, ['x'], ['e']), H.make_node('Add', ['e', 'x'], ['y'])], [('x', np.float32, s[:2])], {}, f'{op} {s[:2]}'
        return [H.make_node(op, ['x'], ['y'], upper=int(self.r.integers(2)))], [x], {}, f'{op} {s}'

    def moved(self):
        s, op = self.shape(2, 6, high=5e5), self.pick('Slice', 'Pad', 'Tile', 'Expand', 'DepthToSpace', 'SpaceToDepth', 'Reshape', 'Reverse')
        n, x = len(s), ('x', self.pick(*TYPES), s)
        dims = np.array(s)
        if op == 'Slice':
            step = np.array([int(self.pick(1, 1, 2, 3, -1)) for _ in s])
            first = np.where(step > 0, 0, dims - 1)
            last = np.where(step > 0, dims, -dims - 1)
            return [H.make_node(op, ['x', 'a', 'b', 'c', 'd'], ['y'])], [x], {'a': first, 'b': last, 'c': np.arange(n), 'd': step}, f'{op} {s} {step.tolist()}'
        if op == 'Reverse':
            perm = self.r.permutation(n).tolist()
            k = {'a': dims - 1, 'b': -dims - 1, 'c': np.arange(n), 'd': np.full(n, -1)}
            return [H.make_node('Slice', ['x', 'a', 'b', 'c', 'd'], ['t']), H.make_node('Transpose', ['t'], ['y'], perm=perm)], [x], k, f'{op} {s} {perm}'
        if op == 'Pad':
            mode = self.pick('constant', 'reflect', 'edge', 'wrap')
            pads = np.array([int(self.r.integers(0, min(4, d))) for d in s + s])
            return [H.make_node(op, ['x', 'p'], ['y'], mode=mode)], [('x', np.float32, s)], {'p': pads}, f'{op} {mode} {s} {pads.tolist()}'
        if op == 'Tile':
            times = [int(self.pick(1, 1, 2, 3)) for _ in s]
            return [H.make_node(op, ['x', 't'], ['y'])], [x], {'t': np.array(times)}, f'{op} {s} {times}'
        if op == 'Expand':
            t = [d if self.chance(.5) else 1 for d in s]
            return [H.make_node(op, ['x', 't'], ['y'])], [('x', np.float32, t)], {'t': dims}, f'{op} {t} to {s}'
        if op in ('DepthToSpace', 'SpaceToDepth'):
            b, h, w = int(self.pick(2, 3, 4, 5)), int(self.pick(3, 8, 17)), int(self.pick(3, 8, 17))
            c = int(self.pick(1, 3, 4))
            t = [1, c * b * b, h, w] if op == 'DepthToSpace' else [1, c, h * b, w * b]
            return [H.make_node(op, ['x'], ['y'], blocksize=b)], [('x', np.float32, t)], {}, f'{op} {t} {b}'
        perm = self.r.permutation(n).tolist()
        flat = self.pick([-1], [s[0], -1], [-1, s[-1]])
        nodes = [H.make_node('Transpose', ['x'], ['t'], perm=perm), H.make_node('Reshape', ['t', 'n'], ['y'])]
        flat = [-1] if flat != [-1] and math.prod(s) % max(flat) else flat
        return nodes, [x], {'n': np.array(flat)}, f'{op} {s} {perm} {flat}'

    def network(self):
        """A few layers after one another, which fuse."""
        c, x, nodes, k, last = int(self.pick(3, 17, 32)), int(self.pick(14, 31, 56)), [], {}, 'x'
        first = c
        for i in range(int(self.pick(2, 4, 6))):
            o, q = int(self.pick(8, 17, 31, 32, 64)), int(self.pick(1, 3, 3, 5))
            kind = self.pick('conv', 'conv', 'depthwise', 'attention', 'norm')
            if kind == 'norm':
                k |= {f'g{i}': self.f32(c), f'h{i}': self.f32(c)}
                nodes.append(H.make_node('InstanceNormalization', [last, f'g{i}', f'h{i}'], [f'n{i}']))
            elif kind == 'attention':
                k |= {f'w{i}': self.f32(c, c, 1, 1)}
                nodes += [H.make_node('GlobalAveragePool', [last], [f'a{i}']), H.make_node('Conv', [f'a{i}', f'w{i}'], [f'b{i}']), H.make_node('Sigmoid', [f'b{i}'], [f'c{i}']),
                          H.make_node('Mul', [last, f'c{i}'], [f'n{i}'])]
            else:
                o, g = (c, c) if kind == 'depthwise' else (o, 1)
                k |= {f'w{i}': self.f32(o, c // g, q, q), f'b{i}': self.f32(o)}
                nodes += [H.make_node('Conv', [last, f'w{i}', f'b{i}'], [f'm{i}'], pads=[q // 2] * 4, group=g), H.make_node(self.pick('Relu', 'Sigmoid', 'HardSwish'), [f'm{i}'], [f'n{i}'])]
                c = o
            last = f'n{i}'
        nodes.append(H.make_node('Transpose', [last], ['y'], perm=self.pick([0, 1, 2, 3], [0, 2, 3, 1])))
        return nodes, [('x', np.float32, [1, first, x, x])], k, f'{[n.op_type for n in nodes]} {x}'


FAMILIES = [name for name in vars(Draw) if not name.startswith('_') and name not in ('pick', 'chance', 'shape', 'data', 'f32')]


def model(nodes, inputs, constants):
    info = [H.make_tensor_value_info(n, H.np_dtype_to_tensor_dtype(np.dtype(t)), s) for n, t, s in inputs]
    constants = [N.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = H.make_graph(nodes, 'g', info, [H.make_tensor_value_info('y', T.UNDEFINED, None)], constants)
    made = H.make_model(graph, opset_imports=[H.make_opsetid('', 21)], ir_version=10)
    # The type of the result is whatever the nodes make.
    known = {v.name: v for v in onnx.shape_inference.infer_shapes(made).graph.output}
    made.graph.output[0].CopyFrom(known['y'])
    return made


def measure(ansc, made, more):
    folder = tempfile.mkdtemp()
    try:
        onnx.save(made, folder + '/m.onnx')
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [ansc, 'compile', folder + '/m.onnx', '-o', folder + '/m.ansc', '--threads', '1', '--untuned', '--json', *more]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=200)
        except subprocess.TimeoutExpired:
            return {'cpu': 200, 'bad': 'timeout'}
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        row = {'cpu': round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 3)}
        if run.returncode:
            row['refused' if run.returncode in (1, 2) else 'bad'] = (run.stderr or run.stdout)[-400:]
            return row
        report = json.loads(run.stdout)['report']
        row['kb'] = round((report['artifact_bytes'] - report['weight_bytes']) / 1e3, 1)
        row['stages'] = {k: round(v, 2) for k, v in report['stages']}
        return row
    finally:
        shutil.rmtree(folder)


def networks(ansc, names, limit, more):
    """The slowest kernel of each network: the seconds of its schedule, and of its code. Whether one is beyond the limit."""
    generated = json.loads(subprocess.check_output([ansc, 'models', '--json']))['generated']
    names = [g['name'] for g in generated if g['kind'] == 'network'] if names == 'all' else names.split(',')
    alone, over = os.environ | {'RAYON_NUM_THREADS': '1'}, []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([ansc, 'models', name, '-o', folder], check=True, capture_output=True)
            command = [ansc, 'compile', f'{folder}/{name}.onnx', '-o', folder + '/m.ansc', '--untuned', '--json', *more]
            report = json.loads(subprocess.check_output(command, env=alone))['report']
        slowest = report['slowest_kernel']
        print(f'{name:24} {report["seconds"]:6.2f} s, {report["distinct_kernels"]:3} kernels, slowest {slowest["schedule"]:.2f} + {slowest["codegen"]:.2f} s '
              f'{slowest["name"]}', flush=True)
        over += [name] if slowest['schedule'] + slowest['codegen'] > limit else []
    print(f'{len(over)} with a kernel beyond {limit} s')
    return bool(over)


def main():
    own, more = (sys.argv[1:sys.argv.index('--')], sys.argv[sys.argv.index('--') + 1:]) if '--' in sys.argv else (sys.argv[1:], [])
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('ansc')
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--n', type=int, default=300)
    ap.add_argument('--families', default=','.join(FAMILIES))
    ap.add_argument('--seconds', type=float)
    ap.add_argument('--kilobytes', type=float, default=512)
    ap.add_argument('--networks')
    ap.add_argument('--out')
    a = ap.parse_args(own)
    if a.networks:
        sys.exit(networks(a.ansc, a.networks, a.seconds or 1, more))
    a.seconds = a.seconds or 2
    draw, families, rows = Draw(a.seed), a.families.split(','), []
    out = open(a.out, 'a') if a.out else None
    for i in range(a.n):
        family = families[i % len(families)]
        nodes, inputs, constants, text = getattr(draw, family)()
        row = {'family': family, 'text': text, 'seed': a.seed, 'i': i}
        try:
            made = model(nodes, inputs, constants)
        except Exception as e:
            row |= {'cpu': 0, 'undrawn': str(e)[-200:]}
        else:
            row |= measure(a.ansc, made, more)
        rows.append(row)
        if out:
            out.write(json.dumps(row) + '\n')
            out.flush()
    print(f'seed {a.seed}: {len(rows)} models, {sum("refused" in r for r in rows)} refused, {sum("undrawn" in r for r in rows)} not drawn')
    worst = [sorted(rows, key=lambda r: -r.get(key, 0))[:12] for key in ('cpu', 'kb')]
    for title, some in zip(('slowest', 'largest'), worst):
        print(title)
        for r in some:
            print(f'  {r["cpu"]:8.2f} s {r.get("kb", 0):9.1f} kB  {r["family"]} {r["text"]} {r.get("bad", "")}')
    over = [r for r in rows if r['cpu'] > a.seconds or r.get('kb', 0) > a.kilobytes or 'bad' in r]
    print(f'{len(over)} beyond {a.seconds} s or {a.kilobytes} kB')
    sys.exit(bool(over))


if __name__ == '__main__':
    main()
