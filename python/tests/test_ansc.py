"""The package `ansc` as it is installed: python -m unittest discover python/tests"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

import ansc

ROOT = Path(__file__).resolve().parents[2]


def model(nodes, inputs, outputs):
    """A model as the bytes of a file. Ports are `name: (type, shape)`."""
    ports = [
        [helper.make_tensor_value_info(name, *about) for name, about in ports.items()]
        for ports in (inputs, outputs)
    ]
    nodes = [helper.make_node(*node[:3], **(node[3] if node[3:] else {})) for node in nodes]
    opset = [helper.make_opsetid("", 18)]
    graph = helper.make_graph(nodes, "graph", *ports)
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def doubled(kind, shape=(2, 3)):
    """y = x + x"""
    return model([("Add", ["x", "x"], ["y"])], {"x": (kind, shape)}, {"y": (kind, shape)})


def product():
    """y = a @ b"""
    inputs = {"a": (T.FLOAT, (64, 64)), "b": (T.FLOAT, (64, 64))}
    return model([("MatMul", ["a", "b"], ["y"])], inputs, {"y": (T.FLOAT, (64, 64))})


def shares():
    """y = softmax of x: [n, 3] along n, and t = transposed y"""
    nodes = [("Softmax", ["x"], ["y"], {"axis": 0}), ("Transpose", ["y"], ["t"])]
    outputs = {"y": (T.FLOAT, ("n", 3)), "t": (T.FLOAT, (3, "n"))}
    return model(nodes, {"x": (T.FLOAT, ("n", 3))}, outputs)


def appended():
    """present: [1, past + n, 4] = past, then x: [1, n, 4]; its sum, and y = x + x"""
    nodes = [
        ("Concat", ["past", "x"], ["present"], {"axis": 1}),
        ("ReduceSum", ["present"], ["sum"], {"keepdims": 0}),
        ("Add", ["x", "x"], ["y"]),
    ]
    inputs = {"past": (T.FLOAT, (1, "past", 4)), "x": (T.FLOAT, (1, "n", 4))}
    outputs = {
        "present": (T.FLOAT, (1, "total", 4)),
        "sum": (T.FLOAT, ()),
        "y": (T.FLOAT, (1, "n", 4)),
    }
    return model(nodes, inputs, outputs)


def decoder():
    """logits: [1, n, 1] of ids: [1, n] and of those before"""
    nodes = [
        ("Concat", ["past_0", "ids"], ["present_0"], {"axis": 1}),
        ("ReduceSum", ["present_0"], ["sum"], {"keepdims": 0}),
        ("Add", ["ids", "sum"], ["next"]),
        ("Cast", ["next"], ["floats"], {"to": T.FLOAT}),
        ("Constant", [], ["axis"], {"value_ints": [2]}),
        ("Unsqueeze", ["floats", "axis"], ["logits"]),
    ]
    inputs = {"ids": (T.INT64, (1, "n")), "past_0": (T.INT64, (1, "past"))}
    outputs = {"logits": (T.FLOAT, (1, "n", 1)), "present_0": (T.INT64, (1, "total"))}
    return model(nodes, inputs, outputs)


def session_of(model, **options):
    return ansc.compile(model, **options).session(threads=1)


def ramp(dtype=np.float32, shape=(2, 3)):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


class Lent:
    """A tensor of another library, that lends its memory by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = session_of(doubled(T.FLOAT))

    def test_run_gives_new_arrays(self):
        first = self.session.run({"x": ramp()})["y"]
        second = self.session.run({"x": -ramp()})["y"]
        np.testing.assert_array_equal(first, 2 * ramp())
        np.testing.assert_array_equal(second, -2 * ramp())
        self.assertEqual((first.dtype, first.flags.writeable), (np.float32, True))

    def test_run_into_writes_to_the_callers_arrays(self):
        y = np.zeros((2, 3), np.float32)
        results = self.session.run_into({"x": ramp()}, {"y": y})
        self.assertIs(results["y"], y)
        np.testing.assert_array_equal(y, 2 * ramp())
        self.assertEqual(self.session.run_into({"x": ramp()}, {}), {})

    def test_run_into_refuses_what_it_cannot_write(self):
        x, y = ramp(), np.zeros((2, 3), np.float32)
        whole = np.zeros((4, 3), np.float32)
        fixed = y.copy()
        fixed.flags.writeable = False
        cases = [
            (x, "overlaps that of `x`"),
            (np.zeros((3, 2), np.float32).T, "C order"),
            (fixed, "read-only"),
            ([[0.0] * 3] * 2, "must be an array"),
            (np.zeros((3, 3), np.float32), r"\[2, 3\], but \[3, 3\] was given"),
            (y.astype(np.float64), "of type f32, but f64 was given"),
        ]
        for array, words in cases:
            with self.assertRaisesRegex(ansc.Error, words):
                self.session.run_into({"x": x}, {"y": array})
        # Beside each other in one array is not the same memory.
        whole[:2] = x
        self.session.run_into({"x": whole[:2]}, {"y": whole[2:]})
        np.testing.assert_array_equal(whole[2:], 2 * x)

    def test_arrays_of_any_layout(self):
        wide = ramp(shape=(4, 6))
        strided = [
            wide[::2, ::2],
            wide[:2, ::-2],
            ramp(shape=(3, 2)).T,
            np.broadcast_to(np.float32(3), (2, 3)),
            ramp().astype(">f4"),
        ]
        for x in strided:
            np.testing.assert_array_equal(self.session.run({"x": x})["y"], 2 * x)
        unaligned = np.frombuffer(b"." + ramp().tobytes(), np.uint8)[1:].view(np.float32)
        result = self.session.run({"x": unaligned.reshape(2, 3)})["y"]
        np.testing.assert_array_equal(result, 2 * ramp())
        read_only = ramp()
        read_only.flags.writeable = False
        np.testing.assert_array_equal(self.session.run({"x": read_only})["y"], 2 * ramp())

    def test_tensors_of_other_libraries(self):
        np.testing.assert_array_equal(self.session.run({"x": Lent(ramp())})["y"], 2 * ramp())
        turned = Lent(ramp(shape=(3, 2)).T)
        np.testing.assert_array_equal(self.session.run({"x": turned})["y"], 2 * turned.array)
        part = Lent(ramp(shape=(4, 3))[2:])
        np.testing.assert_array_equal(self.session.run({"x": part})["y"], 2 * part.array)

    def test_lists_take_the_type_of_the_input(self):
        result = self.session.run({"x": [[1, 2, 3], [4, 5, 6.5]]})["y"]
        np.testing.assert_array_equal(result, np.float32([[2, 4, 6], [8, 10, 13]]))
        with self.assertRaisesRegex(ansc.DataError, "input `x` cannot be made of this value"):
            self.session.run({"x": [["a", "b", "c"]] * 2})
        with self.assertRaisesRegex(ansc.DataError, "input `x` cannot be made of this value"):
            session_of(doubled(T.INT64)).run({"x": [[0.5] * 3] * 2})

    def test_wrong_inputs_are_named(self):
        cases = [
            ({}, "input `x` is missing"),
            ({"x": ramp(), "z": ramp()}, "has no input `z`; it has x"),
            ({"x": ramp(np.float64)}, "input `x` is of type f32, but f64 was given"),
            ({"x": ramp(shape=(3, 3))}, r"input `x` has shape \[2, 3\], but \[3, 3\] was given"),
            ({"x": np.array([["a"]])}, "elements of type str32, which ansc lacks"),
        ]
        for inputs, words in cases:
            with self.assertRaisesRegex(ansc.DataError, words):
                self.session.run(inputs)
        with self.assertRaisesRegex(ansc.UsageError, "strings and not int"):
            self.session.run({0: ramp()})
        with self.assertRaisesRegex(ansc.DataError, "has no output `z`; it has y"):
            self.session.run({"x": ramp()}, ["z"])

    def test_ports_are_described(self):
        [x], [y] = self.session.inputs, self.session.outputs
        self.assertEqual((x.name, x.dtype, x.shape), ("x", "float32", (2, 3)))
        self.assertEqual((y.name, y.dtype, y.shape, y.is_bound), ("y", "float32", (2, 3), False))
        self.assertEqual(self.session.threads, 1)


class Types(unittest.TestCase):
    def test_every_type(self):
        kinds = [T.UINT8, T.UINT16, T.UINT32, T.UINT64, T.INT8, T.INT16, T.INT32, T.INT64]
        kinds += [T.FLOAT16, T.FLOAT, T.DOUBLE, T.BFLOAT16]
        for kind in kinds:
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            session = session_of(doubled(kind))
            self.assertEqual(session.inputs[0].dtype, dtype.name)
            y = session.run({"x": ramp(dtype)})["y"]
            self.assertEqual(y.dtype, dtype)
            np.testing.assert_array_equal(y, ramp(dtype) + ramp(dtype))

    def test_bools(self):
        not_x = model([("Not", ["x"], ["y"])], {"x": (T.BOOL, (2,))}, {"y": (T.BOOL, (2,))})
        session = session_of(not_x)
        y = session.run({"x": np.array([True, False])})["y"]
        self.assertEqual(y.tolist(), [False, True])
        with self.assertRaisesRegex(ansc.DataError, "bool"):
            session.run({"x": np.array([2, 0], np.uint8).view(bool)})

    def test_bfloat16_of_another_library(self):
        x = ramp(ml_dtypes.bfloat16)
        y = np.zeros_like(x)
        session_of(doubled(T.BFLOAT16)).run_into({"x": x}, {"y": y})
        np.testing.assert_array_equal(y, 2 * x)

    def test_scalars_and_nothing(self):
        for shape in [(), (0, 3)]:
            session = session_of(doubled(T.FLOAT, shape))
            y = session.run({"x": np.ones(shape, np.float32)})["y"]
            self.assertEqual((y.shape, y.tolist()), (shape, 2.0 if shape == () else []))

    def test_outputs_whose_size_the_data_decide(self):
        where = model(
            [("NonZero", ["x"], ["y"])], {"x": (T.FLOAT, (6,))}, {"y": (T.INT64, (1, None))}
        )
        session = session_of(where)
        x = np.float32([0, 1, 0, 2, 3, 0])
        np.testing.assert_array_equal(session.run({"x": x})["y"], [[1, 3, 4]])
        y = np.zeros(session.outputs[0].shape, np.int64)
        np.testing.assert_array_equal(session.run_into({"x": x}, {"y": y})["y"], [[1, 3, 4]])


class Models(unittest.TestCase):
    def test_several_sizes(self):
        both = doubled(T.FLOAT, ("n", 3))
        artifact = ansc.compile(both, dims={"n": [1, 4]})
        loaded = artifact.load()
        self.assertEqual([one.name for one in loaded.specialisations], ["n=1", "n=4"])
        session = loaded.session(threads=1)
        for n in (4, 1, 4):
            x = ramp(shape=(n, 3))
            np.testing.assert_array_equal(session.run({"x": x})["y"], 2 * x)
        with self.assertRaisesRegex(ansc.DataError, "was not compiled for x"):
            session.run({"x": ramp(shape=(2, 3))})

    def test_ranges_of_sizes(self):
        source = shares()
        artifact = ansc.compile(source, dims={"n": range(1, 41)})
        loaded = artifact.load()
        parts = loaded.specialisations
        names = ["n=1", "n=2..4", "n=5..8", "n=9..16", "n=17..32", "n=33..40"]
        self.assertEqual([one.name for one in parts], names)
        self.assertEqual([one.inputs[0].shape[0] for one in parts], [1, 4, 8, 16, 32, 40])
        session = loaded.session(threads=1)
        for n in (40, 1, 5, 2, 17, 16, 33, 40):
            x = ramp(shape=(n, 3)) % 7
            y = np.exp(x) / np.exp(x).sum(axis=0)
            results = session.run({"x": x})
            np.testing.assert_allclose(results["y"], y, rtol=1e-5)
            np.testing.assert_allclose(results["t"], y.T, rtol=1e-5)
            self.assertEqual(list(session.run({"x": x}, ["t"])), ["t"])
            into = {"y": np.full((n, 3), np.nan, np.float32), "t": np.zeros((3, n), np.float32)}
            written = session.run_into({"x": x}, into)
            for name, array in into.items():
                self.assertIs(written[name], array)
                np.testing.assert_array_equal(array, results[name])
        self.assertTrue(ansc.verify(source, artifact)["ok"])

    def test_sizes_beside_a_range_are_refused(self):
        session = session_of(shares(), dims={"n": "2..20"})
        for n in (0, 1, 21):
            words = rf"x \[{n}, 3\], only for x \[2..=4, 3\]; x \[5..=8, 3\]"
            with self.assertRaisesRegex(ansc.DataError, words):
                session.run({"x": ramp(shape=(n, 3))})
        x, t = ramp(shape=(5, 3)), np.zeros((3, 16), np.float32)
        with self.assertRaisesRegex(ansc.DataError, r"`t` has shape \[3, 5\], but \[3, 16\] was"):
            session.run_into({"x": x}, {"t": t})
        self.assertEqual(session.run({"x": x})["t"].shape, (3, 5))
        with self.assertRaisesRegex(ansc.UsageError, "begins above its end"):
            ansc.compile(shares(), dims={"n": "5..2"})

    def test_ranges_may_be_written_in_several_ways(self):
        cases = [
            ("1..20", ["n=1", "n=2..4", "n=5..8", "n=9..16", "n=17..20"]),
            ("3,5..20", ["n=3", "n=5..8", "n=9..16", "n=17..20"]),
            ([3, range(9, 21)], ["n=3", "n=9..16", "n=17..20"]),
            ([np.int64(2), range(4, 5)], ["n=2", "n=4"]),
            (range(8, 33, 8), ["n=8", "n=16", "n=24", "n=32"]),
            (range(7, 8), [""]),
        ]
        for sizes, names in cases:
            loaded = ansc.compile(shares(), dims={"n": sizes}).load()
            self.assertEqual([one.name for one in loaded.specialisations], names)

    def test_outputs_can_be_chosen(self):
        nodes = [("Neg", ["x"], ["a"]), ("Abs", ["x"], ["b"])]
        port = (T.FLOAT, (2, 3))
        session = session_of(model(nodes, {"x": port}, {"a": port, "b": port}))
        self.assertEqual(list(session.run({"x": ramp()})), ["a", "b"])
        self.assertEqual(list(session.run({"x": ramp()}, ["b"])), ["b"])

    def test_values_can_be_fixed(self):
        spread = model(
            [("Expand", ["x", "shape"], ["y"])],
            {"x": (T.FLOAT, (3,)), "shape": (T.INT64, (2,))},
            {"y": (T.FLOAT, ("n", 3))},
        )
        session = session_of(spread, values={"shape": np.int64([2, 3])})
        self.assertEqual([port.is_bound for port in session.inputs], [False, True])
        x = ramp(shape=(3,))
        np.testing.assert_array_equal(session.run({"x": x})["y"], [x, x])

    def test_models_come_from_files_bytes_and_protobufs(self):
        data = doubled(T.FLOAT)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(data)
            for source in (data, onnx.load_from_string(data), path, str(path)):
                artifact = ansc.compile(source, output=Path(folder) / "model.ansc")
                self.assertEqual(artifact.path, Path(folder) / "model.ansc")
            loaded = [ansc.load(source) for source in (artifact.path, artifact.to_bytes())]
            loaded.append(ansc.load(artifact.path, share_weights=True))
        for one in loaded:
            y = one.session(threads=1).run({"x": ramp()})["y"]
            np.testing.assert_array_equal(y, 2 * ramp())
        self.assertTrue(ansc.verify(data, ansc.compile(data))["ok"])
        self.assertEqual(ansc.inspect(data)["inputs"][0]["name"], "x")

    def test_operands_may_have_fewer_bits(self):
        artifact = ansc.compile(product(), precision=["bf16"])
        report = ansc.verify(product(), artifact)
        self.assertEqual((report["ok"], report["precision"]), (True, {"model": "bf16"}))
        self.assertGreater(report["outputs"][0]["max_rel"], 1e-5)
        with self.assertRaisesRegex(ansc.UsageError, "no node `p,q`"):
            ansc.compile(product(), precision=["bf16", "p,q=f32"])

    def test_artifacts_are_checked(self):
        data = bytearray(ansc.compile(doubled(T.FLOAT)).to_bytes())
        data[len(data) // 2] ^= 1
        with self.assertRaisesRegex(ansc.DataError, "the artifact in memory: is damaged"):
            ansc.load(bytes(data))
        with self.assertRaisesRegex(ansc.DataError, "no.ansc: cannot be read"):
            ansc.load("no.ansc")


class States(unittest.TestCase):
    """Tensors that a session keeps from one run to the next."""

    @classmethod
    def setUpClass(cls):
        dims = {"past": range(0, 9), "n": range(1, 4)}
        cls.model = ansc.compile(appended(), dims=dims, states={"past*": "present*"}).load()

    def setUp(self):
        self.session = self.model.session(threads=1)
        self.kept = np.zeros((1, 0, 4), np.float32)

    def step(self, n):
        """A run, which is compared with NumPy."""
        x = ramp(shape=(1, n, 4)) + self.kept.shape[1] + 1
        self.kept = np.concatenate([self.kept, x], axis=1)
        results = self.session.run({"x": x})
        self.assertEqual(list(results), ["sum", "y"])
        np.testing.assert_allclose(results["sum"], self.kept.sum(), rtol=1e-6)
        np.testing.assert_array_equal(results["y"], 2 * x)
        np.testing.assert_array_equal(self.session.state("past"), self.kept)

    def test_runs_add_to_a_state(self):
        [state] = self.session.states
        self.assertEqual((state.name, state.dtype, state.is_bound), ("past", "float32", False))
        self.assertEqual(state.shape[::2], (1, 4))
        self.assertEqual([port.name for port in self.session.inputs], ["x"])
        self.assertEqual([port.name for port in self.session.outputs], ["sum", "y"])
        for n in (3, 1, 2, 1, 1):
            self.step(n)
        y = np.zeros((1, 1, 4), np.float32)
        self.session.run_into({"x": y + 3}, {"y": y})
        np.testing.assert_array_equal(y, np.full((1, 1, 4), 6))
        self.assertEqual(self.session.state("past").shape, (1, 9, 4))

    def test_a_session_is_cut_and_forgets(self):
        self.step(3)
        self.step(2)
        self.session.truncate(2)
        self.kept = self.kept[:, :2]
        self.step(3)
        self.session.truncate(100)
        self.step(1)
        self.session.reset()
        self.kept = self.kept[:, :0]
        self.step(2)

    def test_states_are_saved_and_given_back(self):
        self.step(3)
        saved = self.session.state("past")
        self.step(2)
        np.testing.assert_array_equal(saved, self.kept[:, :3])
        self.session = self.model.session(threads=1)
        self.session.set_state("past", saved)
        self.kept = saved
        self.step(1)
        # Arrays of any layout will do.
        wide = ramp(shape=(1, 4, 8))
        self.session.set_state("past", wide[:, :, ::2])
        self.kept = wide[:, :, ::2]
        self.step(1)

    def test_shapes_of_outputs_are_told(self):
        self.step(3)
        self.assertEqual(self.session.output_shapes({"x": (1, 2, 4)}), {"sum": (), "y": (1, 2, 4)})
        with self.assertRaisesRegex(ansc.DataError, "no input `z`"):
            self.session.output_shapes({"z": [1]})

    def test_a_full_session_says_so(self):
        for n in (3, 3, 3):
            self.step(n)
        x = np.zeros((1, 3, 4), np.float32)
        with self.assertRaisesRegex(ansc.DataError, r"keeps past \[1, 9, 4\].*`truncate`"):
            self.session.run({"x": x})
        self.session.truncate(8)
        self.kept = self.kept[:, :8]
        self.step(1)

    def test_what_does_not_fit_is_refused(self):
        with self.assertRaisesRegex(ansc.DataError, "no state `x`; it has past"):
            self.session.state("x")
        with self.assertRaisesRegex(ansc.DataError, "no state `present`; it has past"):
            self.session.set_state("present", ramp())
        with self.assertRaisesRegex(ansc.DataError, r"\[1, 99, 4\] was given"):
            self.session.set_state("past", np.zeros((1, 99, 4), np.float32))
        with self.assertRaisesRegex(ansc.DataError, "f32, but f64 was given"):
            self.session.set_state("past", np.zeros((1, 2, 4)))
        with self.assertRaisesRegex(ansc.UsageError, r"`--state nosuch\*=..`"):
            ansc.compile(appended(), dims={"past": 2, "n": 1}, states={"nosuch*": "present*"})
        self.step(1)

    def test_models_without_states(self):
        session = session_of(doubled(T.FLOAT))
        session.reset()
        session.truncate(0)
        self.assertEqual(session.states, [])
        self.assertEqual(session.output_shapes({"x": [2, 3]}), {"y": (2, 3)})

    def test_a_state_that_does_not_grow(self):
        port = (T.FLOAT, (2, 3))
        added = model([("Add", ["h", "x"], ["hn"])], {"h": port, "x": port}, {"hn": port})
        session = session_of(added, states={"h": "hn"})
        for _ in range(3):
            self.assertEqual(session.run({"x": ramp()}), {})
        np.testing.assert_array_equal(session.state("h"), 3 * ramp())
        with self.assertRaisesRegex(ansc.UsageError, "does not grow"):
            session.truncate(0)
        session.reset()
        np.testing.assert_array_equal(session.state("h"), 0 * ramp())


class DataSizes(unittest.TestCase):
    """Sizes that the data decides, and random numbers."""

    def test_a_number_of_the_data_is_a_size(self):
        nodes = [("ConstantOfShape", ["n"], ["zeros"]), ("RandomUniformLike", ["zeros"], ["noise"])]
        drawn = model(nodes, {"n": (T.INT64, (1,))}, {"noise": (T.FLOAT, None)})
        session = session_of(drawn, most={"n": 9})
        first, second = (session.run({"n": np.array([5])})["noise"] for _ in range(2))
        self.assertEqual((first.shape, second.shape), ((5,), (5,)))
        self.assertTrue(((0 <= first) & (first < 1)).all() and (first != second).any())
        session.seed(0)
        np.testing.assert_array_equal(session.run({"n": np.array([5])})["noise"], first)
        session.seed(1)
        self.assertTrue((session.run({"n": np.array([5])})["noise"] != first).any())
        self.assertEqual(session.run({"n": np.array([0])})["noise"].shape, (0,))
        with self.assertRaisesRegex(ansc.DataError, "makes this number 10, and the code is for 9 at most"):
            session.run({"n": np.array([10])})
        with self.assertRaisesRegex(ansc.DataError, "no tensor `m`"):
            ansc.compile(drawn, most={"m": 9})


class Errors(unittest.TestCase):
    """Exceptions have the words and the exit codes of the command."""

    def command(self, *words):
        words = [sys.executable, "-m", "ansc", *words]
        done = subprocess.run(words, capture_output=True, text=True)
        return done.returncode, done.stderr.strip().removeprefix("error: ")

    def test_what_cannot_be_compiled(self):
        unknown = model([("Nosuch", ["x"], ["y"])], {"x": (T.FLOAT, (1,))}, {"y": (T.FLOAT, (1,))})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "unknown.onnx"
            path.write_bytes(unknown)
            with self.assertRaises(ansc.DataError) as caught:
                ansc.compile(path)
            self.assertEqual(self.command("compile", path), (1, str(caught.exception)))
            self.assertIn("Nosuch", str(caught.exception.problems))
            report = ansc.check(path)
            self.assertFalse(report["compiles"])
            self.assertEqual(len(report["report"]["problems"]), 1)

    def test_wrong_usage(self):
        data = doubled(T.FLOAT)
        with self.assertRaises(ansc.UsageError) as caught:
            ansc.compile(data, target_cpu="nosuch")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(data)
            expected = (2, str(caught.exception))
            self.assertEqual(self.command("compile", path, "--target-cpu", "nosuch"), expected)
        with self.assertRaisesRegex(ansc.UsageError, "--nosuch"):
            ansc.compile(data, nosuch=1)
        with self.assertRaisesRegex(ansc.UsageError, "--sm is for"):
            ansc.compile(data, sm=[90])

    def test_another_machine(self):
        artifact = ansc.compile(doubled(T.FLOAT), target="cuda", sm=[80])
        try:
            artifact.session()
        except ansc.MachineError as error:
            self.assertRegex(str(error), "GPU|CUDA|driver|libcuda")


class Threads(unittest.TestCase):
    def test_sessions_in_many_threads(self):
        loaded = ansc.compile(product()).load()
        random = np.random.default_rng(0)
        a, b = random.random((2, 64, 64), np.float32)
        expected = loaded.session(threads=1).run({"a": a, "b": b})["y"]
        np.testing.assert_allclose(expected, a @ b, rtol=1e-5)
        shared = loaded.session(threads=1)
        wrong = []

        def work(session):
            for _ in range(200):
                if not np.array_equal(session.run({"a": a, "b": b})["y"], expected):
                    wrong.append(session)

        # Sessions of their own, and one that takes turns.
        sessions = [loaded.session(threads=1), loaded.session(threads=1), shared, shared]
        threads = [threading.Thread(target=work, args=[session]) for session in sessions]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(wrong, [])


class Tuning(unittest.TestCase):
    def test_progress_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            records, rounds = Path(folder) / "records.db", []
            data = product()
            options = {"records": records, "trials": 8, "per_round": 4, "threads": 1}
            report = ansc.tune(data, progress=rounds.append, **options)
            self.assertEqual(report["trials"], 8)
            self.assertEqual([one["trials"] for one in rounds], [4, 8])
            tuned = ansc.compile(data, records=records, threads=1)
            self.assertTrue(ansc.verify(data, tuned)["ok"])

    def test_an_exception_ends_it(self):
        def fail(one):
            raise ZeroDivisionError(one["trials"])

        with tempfile.TemporaryDirectory() as folder:
            records = Path(folder) / "records.db"
            options = {"records": records, "trials": 400, "per_round": 4, "threads": 1}
            with self.assertRaises(ZeroDivisionError) as caught:
                ansc.tune(product(), progress=fail, **options)
            self.assertEqual(caught.exception.args, (4,))

    def test_ctrl_c_keeps_the_records(self):
        # A shell lets what it runs in the background ignore the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        before = signal.getsignal(signal.SIGINT)
        interrupt = lambda _: os.kill(os.getpid(), signal.SIGINT)
        with tempfile.TemporaryDirectory() as folder:
            records = Path(folder) / "records.db"
            options = {"records": records, "trials": 400, "per_round": 4, "threads": 1}
            with self.assertRaises(KeyboardInterrupt):
                ansc.tune(product(), progress=interrupt, **options)
            self.assertIs(signal.getsignal(signal.SIGINT), before)
            with self.assertRaises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                signal.pause()
            words = [sys.executable, "-m", "ansc", "records", "ls", records, "--json"]
            kept = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            measured = sum(int(n) for n in re.findall(r'"records":(\d+)', kept))
            self.assertGreaterEqual(measured, 4)
            self.assertLess(measured, 100)


class Pages(unittest.TestCase):
    """The examples of the documentation run, one after the other, with small networks in place of theirs."""

    def test_examples_run(self):
        port = {"x": (T.FLOAT, (1, 3, 224, 224))}
        pool = [("GlobalAveragePool", ["x"], ["logits"])]
        network = model(pool, port, {"logits": (T.FLOAT, (1, 3, 1, 1))})
        for page in ("README.md", "python/README.md", "docs/src/embedding.md", "docs/src/quick-start.md"):
            blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
            blocks = [block for block in blocks if "import ansc\n" in block]
            self.assertTrue(blocks, page)
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "resnet18.onnx").write_bytes(network)
                (Path(folder) / "decoder.onnx").write_bytes(decoder())
                for block in blocks:
                    words = [sys.executable, "-c", block]
                    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, f"{page}:\n{block}\n{done.stderr}")


if __name__ == "__main__":
    unittest.main()
