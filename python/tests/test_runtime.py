"""The package `ansc_runtime`, where there is no other: test_runtime.py ARTIFACT, which computes y = x + x of float32[2, 3]."""

import sys
import unittest

import ansc_runtime
import numpy as np

ARTIFACT = sys.argv.pop()


class Runtime(unittest.TestCase):
    def test_there_is_no_compiler(self):
        with self.assertRaises(ImportError):
            import ansc  # noqa: F401
        self.assertFalse(hasattr(ansc_runtime._native, "verb"))

    def test_an_artifact_runs(self):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        with open(ARTIFACT, "rb") as file:
            sources = [ARTIFACT, file.read()]
        for source in sources:
            session = ansc_runtime.load(source).session(threads=1)
            np.testing.assert_array_equal(session.run({"x": x})["y"], 2 * x)

    def test_errors_are_of_this_package(self):
        self.assertEqual(ansc_runtime.DataError.__module__, "ansc_runtime")
        with self.assertRaisesRegex(ansc_runtime.DataError, "no.ansc: cannot be read"):
            ansc_runtime.load("no.ansc")


if __name__ == "__main__":
    unittest.main()
