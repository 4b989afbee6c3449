"""Runs rdma-core's own test suite and prints a line per case: name, outcome, reason.

Arguments: the directory that Debian installs the suite to, a directory to unpack it in, then names of cases (none: all).
"""

import gzip
import pathlib
import sys
import unittest

source, work, *wanted = sys.argv[1:]
tests = pathlib.Path(work) / "tests"
tests.mkdir()
for file in pathlib.Path(source).iterdir():
    if file.name.endswith(".py"):
        (tests / file.name).write_bytes(file.read_bytes())
    elif file.name.endswith(".py.gz"):
        (tests / file.name[:-3]).write_bytes(gzip.decompress(file.read_bytes()))

# The suite finds its parts both as a package and beside its start program.
sys.path[:0] = [work, str(tests)]
sys.argv = ["run_tests.py"]
from args_parser import parser  # noqa: E402
import tests as suite_package  # noqa: E402

parser.parse_args()


class Lines(unittest.TestResult):
    def line(self, case, outcome, reason=""):
        print("CASE", case.id(), outcome, " ".join(str(reason).split()), sep="\t", flush=True)

    def addSuccess(self, case):
        self.line(case, "pass")

    def addSkip(self, case, reason):
        self.line(case, "skip", reason)

    def addFailure(self, case, error):
        self.line(case, "fail", error[1])

    def addError(self, case, error):
        self.line(case, "fail", error[1])


loader = unittest.defaultTestLoader
suite = loader.loadTestsFromNames(wanted) if wanted else loader.loadTestsFromModule(suite_package)
suite.run(Lines())
