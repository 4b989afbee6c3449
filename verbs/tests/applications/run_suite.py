"""Runs rdma-core's own test suite and prints a line per case: name, outcome, reason.

Arguments: the directory that Debian installs the suite to, a directory to unpack it in, then names of cases (none: all).
Before them may come --tries NUMBER SECONDS: then each case has a process of its own, hangs if that takes longer, and is run so
often, unless it is skipped. Where tries differ the outcome is "varies". Cases of vendors' extensions are left out.
"""

import gzip
import os
import pathlib
import signal
import sys
import time
import unittest

arguments = sys.argv[1:]
tries, patience = None, None
if arguments[0] == "--tries":
    tries, patience = int(arguments[1]), float(arguments[2])
    del arguments[:3]
source, work, *wanted = arguments
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


VENDORS = ("tests.test_mlx5", "tests.test_efa", "tests.test_cuda")


def line(case, outcome, reason=""):
    print("CASE", case.id(), outcome, reason, sep="\t", flush=True)


class Lines(unittest.TestResult):
    def __init__(self, report=line):
        super().__init__()
        self.report = report

    def say(self, case, outcome, reason=""):
        self.report(case, outcome, " ".join(str(reason).split()))

    def addSuccess(self, case):
        self.say(case, "pass")

    def addSkip(self, case, reason):
        self.say(case, "skip", reason)

    def addFailure(self, case, error):
        self.say(case, "fail", error[1])

    def addError(self, case, error):
        self.say(case, "fail", error[1])


def cases(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases(part)
        else:
            yield part


def one_try(case):
    """Outcome and reason."""
    sys.stdout.flush()
    result, out = os.pipe()
    process = os.fork()
    if process == 0:
        # What a case starts belongs to its group.
        os.setpgid(0, 0)
        report = lambda _, *what: os.write(out, "\t".join(what).encode()[:4096])  # noqa: E731
        unittest.TestSuite([case]).run(Lines(report))
        os._exit(0)
    os.close(out)
    deadline = time.monotonic() + patience
    ended = 0
    while not ended and time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        time.sleep(0.005)
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
    said = ""
    if ended:
        said = os.read(result, 4096).decode(errors="replace")
    os.close(result)
    if not ended:
        return "hang", f"not done after {patience:g} s"
    if not said:
        return "fail", f"its process ended with {os.waitstatus_to_exitcode(status)}"
    return tuple(said.split("\t"))


def run_apart(case):
    found = [one_try(case)]
    while found[0][0] != "skip" and len(found) < tries:
        found.append(one_try(case))
    bad = [what for what in found if what[0] not in ("pass", "skip")]
    if not bad or len(bad) == len(found):
        line(case, *found[0])
    else:
        # How often is chance.
        line(case, "varies", f"passes, or {bad[0][0]}: {bad[0][1]}")


loader = unittest.defaultTestLoader
suite = loader.loadTestsFromNames(wanted) if wanted else loader.loadTestsFromModule(suite_package)
if tries is None:
    suite.run(Lines())
else:
    for case in cases(suite):
        if not case.id().startswith(VENDORS):
            run_apart(case)
