"""irnic, an RDMA NIC in software, for tests in Python.

    import irnic

    with irnic.lab("star:hosts=2", transport="irn") as lab:
        lost = lab.drop("ack", from_host=1, to_host=0, nth=3)
        server = lab.start(0, ["ib_write_bw", "-d", "irnic0"])
        server.wait_for_listener(18515)
        lab.run(1, ["ib_write_bw", "-d", "irnic0", lab.address(0)])
        assert lost.applied == 1

Programs are unmodified; they need rdma-core's libraries, no device, no root. With pytest, the fixtures `irnic_lab` and
`rdma_pair` have such a lab (docs/python.md).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from .control import Lab as Control
from .control import Refused

__all__ = ["Lab", "Process", "Refused", "Rule", "lab", "program", "run"]

Command = Sequence[Union[str, "os.PathLike[str]"]]

# Seconds between two looks at something that is awaited, and until a process that was terminated is killed.
_INTERVAL = 0.02
_GRACE = 5.0


def program() -> str:
    """Returns the path of irnic: what IRNIC names, else the program that was installed with this package, else the one
    in PATH. Raises FileNotFoundError if there is none."""
    own = [os.path.join(sysconfig.get_path("scripts"), "irnic")]
    if os.name + "_user" in sysconfig.get_scheme_names():
        own.append(os.path.join(sysconfig.get_path("scripts", os.name + "_user"), "irnic"))
    found = os.environ.get("IRNIC") or next(filter(os.path.isfile, own), None) or shutil.which("irnic")
    if found is None:
        raise FileNotFoundError("there is no irnic: pip install irnic, or name it by the variable IRNIC")
    return found


def _options(options: Mapping[str, Any]) -> List[str]:
    """Returns keyword arguments as options of irnic: `program_time="lab"` is `--program-time=lab`, `sysfs=True` is
    `--sysfs`; None and False are left out, a list repeats the option."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                words.append(option)
            elif one is not None and one is not False:
                words.append("{}={}".format(option, one))
    return words


class Process(subprocess.Popen):
    """A program under irnic: a subprocess.Popen whose output is text, standard error included. Leaving a `with` block
    terminates it if it still runs."""

    def __init__(self, command: Command, **popen: Any) -> None:
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("stdout", subprocess.PIPE)
        popen.setdefault("stderr", subprocess.STDOUT)
        popen.setdefault("universal_newlines", True)
        super().__init__(command, **popen)

    def finish(self, timeout: float = 60.0) -> str:
        """Waits for the end, and returns the output. Raises CalledProcessError, with the output, if the exit status is
        not 0; TimeoutExpired after `timeout` seconds, when the program is killed."""
        try:
            output, _ = self.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as expired:
            self.kill()
            expired.output, _ = self.communicate()
            raise
        if self.returncode != 0:
            raise subprocess.CalledProcessError(self.returncode, self.args, output)
        return output or ""

    def wait_for_listener(self, port: int, timeout: float = 10.0) -> None:
        """Waits until a socket in the program's network listens at a TCP port. Raises TimeoutError after `timeout`
        seconds, and ChildProcessError if the program ends before."""
        deadline = time.monotonic() + timeout
        while not _listens(self.pid, port):
            if self.poll() is not None:
                raise ChildProcessError("exit status {} before it listened".format(self.returncode))
            if time.monotonic() > deadline:
                raise TimeoutError("nothing listens at port {}".format(port))
            time.sleep(_INTERVAL)

    def __exit__(self, *_: Any) -> None:
        self.stop()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()

    def stop(self) -> None:
        """Terminates the program if it still runs, and waits for its end."""
        if self.poll() is None:
            self.terminate()
            try:
                self.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self.kill()
        self.wait()


def _listens(pid: int, port: int) -> bool:
    for table in ("tcp", "tcp6"):
        try:
            with open("/proc/{}/net/{}".format(pid, table)) as lines:
                sockets = [line.split() for line in lines]
        except OSError:
            continue
        # Local address, and state 0A: LISTEN.
        if any(len(s) > 3 and s[3] == "0A" and int(s[1].rpartition(":")[2], 16) == port for s in sockets[1:]):
            return True
    return False


def run(
    command: Command, *, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, **options: Any
) -> Process:
    """Starts a program on a software NIC, as `irnic run` does; `options` are its options:

    with irnic.run(["ib_write_bw", "-d", "irnic0"], impair="loss 1%") as server: ...
    """
    return Process([program(), "run", *_options(options), "--", *command], env=env, cwd=cwd)


class Rule:
    """A rule of a lab about frames, in force until it is cleared."""

    def __init__(self, lab: "Lab", number: int) -> None:
        self._lab, self.number = lab, number

    def _counters(self) -> Dict[str, Any]:
        return self._lab._control.rule(self.number)

    @property
    def matches(self) -> int:
        """Number of frames that matched."""
        return self._counters()["matches"]

    @property
    def applied(self) -> int:
        """Number of frames to which the fault was applied."""
        return self._counters()["applied"]

    def clear(self) -> None:
        """Removes the rule."""
        self._lab.ask("clear {}".format(self.number))


class Lab:
    """An emulated network, from entering a `with` block to leaving it. Programs on its hosts are unmodified.

    After the block, `results` has what `irnic lab --json` writes, and `summary` the text that it prints. A host with
    processes left at the end has them terminated.
    """

    def __init__(self, topology: str = "star:hosts=2", **options: Any) -> None:
        """Options are those of `irnic lab`, such as transport="roce", pfc="on", clock="elastic=10", netns=True,
        tcp="emulated", program_time="lab", pcap="lab.pcapng"."""
        self._options = _options({"topology": topology, **options})
        self._namespaces = bool(options.get("netns"))
        self.results: Dict[str, Any] = {}
        self.summary = ""

    def __enter__(self) -> "Lab":
        self._folder = tempfile.TemporaryDirectory(prefix="irnic-python-")
        path = self._path
        # The first program of the lab shows its environment, which is that of all, and ends with this object.
        script = 'env -0 > "$1.part" && mv "$1.part" "$1"; exec cat'
        command = [program(), "lab", "--control", path("control"), "--json", path("results"), *self._options]
        command += ["--", "sh", "-c", script, "sh", path("environment")]
        self._processes: List[Process] = []
        self._lab: Any = None
        try:
            with open(path("summary"), "w") as summary:
                self._lab = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=summary, stderr=summary)
            while not os.path.exists(path("environment")):
                if self._lab.poll() is not None:
                    raise RuntimeError(self._read("summary").strip() or "irnic lab ended at once")
                time.sleep(_INTERVAL)
            pairs = [pair.partition("=") for pair in self._read("environment").split("\0") if pair]
            self._environment = {name: value for name, _, value in pairs}
            self._control = Control(path("control"))
        except BaseException:
            if self._lab is not None:
                self._lab.communicate()
            self._folder.cleanup()
            raise
        self.hosts: int = self.ask("stats")["hosts"]
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        for process in self._processes:
            process.__exit__()
        self._control.close()
        self._lab.stdin.close()
        try:
            self._lab.wait(60)
        except subprocess.TimeoutExpired:
            self._lab.send_signal(signal.SIGKILL)
            self._lab.wait()
        self.summary = self._read("summary")
        results = self._read("results")
        self.results = json.loads(results) if results else {}
        self._folder.cleanup()
        # Another exception is more important.
        if self._lab.returncode != 0 and kind is None:
            raise subprocess.CalledProcessError(self._lab.returncode, self._lab.args, self.summary)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder.name, name)

    def _read(self, name: str) -> str:
        try:
            with open(self._path(name), errors="surrogateescape") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def address(self, host: int) -> str:
        """Returns the address of a host."""
        if not 0 <= host < self.hosts:
            raise IndexError("there are {} hosts".format(self.hosts))
        base = "10.77" if self._namespaces else "127.77"
        return "{}.{}.{}".format(base, (host + 1) // 256, (host + 1) % 256)

    def start(self, host: int, command: Command, **popen: Any) -> Process:
        """Starts a program on a host. It is terminated at the end of the lab."""
        self.address(host)
        environment = dict(popen.pop("env", None) or self._environment, IRNIC_LAB_HOST=str(host))
        words: List[Any] = list(command)
        if self._namespaces:
            words = [program(), "host", str(host), "--", *words]
        process = Process(words, env=environment, **popen)
        self._processes.append(process)
        return process

    def run(self, host: int, command: Command, timeout: float = 60.0, **popen: Any) -> str:
        """Runs a program on a host to its end, and returns its output, as Process.finish does."""
        return self.start(host, command, **popen).finish(timeout)

    def ask(self, command: str) -> Dict[str, Any]:
        """Sends a command to the lab (docs/lab-faults.md), and returns the answer when it has taken effect. Raises
        Refused with the lab's reason, ConnectionError if the lab has ended."""
        return self._control.ask(command)

    def _rule(self, action: str, kind: str, words: Mapping[str, Any]) -> Rule:
        names = {"from_host": "from", "to_host": "to"}
        given = ["{} {}".format(names.get(name, name), value) for name, value in words.items() if value is not None]
        return Rule(self, self.ask(" ".join([action, kind, *given]))["rule"])

    def drop(self, kind: str = "any", **frames: Any) -> Rule:
        """Drops frames: of a kind such as "ack" or "data", with from_host=, to_host=, qp=, nth=, count=."""
        return self._rule("drop", kind, frames)

    def corrupt(self, kind: str = "any", **frames: Any) -> Rule:
        """Corrupts frames, chosen as for drop."""
        return self._rule("corrupt", kind, frames)

    def duplicate(self, kind: str = "any", **frames: Any) -> Rule:
        """Duplicates frames, chosen as for drop."""
        return self._rule("duplicate", kind, frames)

    def delay(self, by: str, kind: str = "any", **frames: Any) -> Rule:
        """Delays frames by a time such as "50us", chosen as for drop."""
        return self._rule("delay " + by, kind, frames)

    def link_down(self, link: str, lasts: Optional[str] = None) -> None:
        """Takes a link such as "h0-s0" down, for a time such as "50ms" or until link_up."""
        self.ask("link down {}{}".format(link, " for " + lasts if lasts else ""))

    def link_up(self, link: str) -> None:
        """Takes a link up again."""
        self.ask("link up " + link)

    def pause(self, priority: int, host: int, lasts: Optional[str] = None) -> None:
        """Stops a host's sending of a priority, as PFC does, for a time or until resume."""
        self.ask("pause {} host {}{}".format(priority, host, " for " + lasts if lasts else ""))

    def resume(self, priority: int, host: int) -> None:
        """Ends a pause."""
        self.ask("resume {} host {}".format(priority, host))

    def kill(self, host: int) -> List[int]:
        """Kills the processes with devices on a host, and returns their ids."""
        return self.ask("kill {}".format(host))["killed"]

    def clear(self) -> None:
        """Removes all rules."""
        self.ask("clear")

    def stats(self) -> Dict[str, Any]:
        """Returns the statistics so far, as in `results`."""
        return self.ask("stats")

    def time(self) -> int:
        """Returns the lab's time, ns."""
        return self.ask("time")["ns"]


def lab(topology: str = "star:hosts=2", **options: Any) -> Lab:
    """Returns a Lab, to be entered by `with`."""
    return Lab(topology, **options)
