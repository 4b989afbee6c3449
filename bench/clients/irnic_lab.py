"""Faults on demand in a running `irnic lab`, from Python: one file to copy, standard library only.

    from irnic_lab import Lab, Refused

    with Lab() as lab:                                  # the lab that runs this process (IRNIC_LAB_CONTROL)
        rule = lab.ask("drop ack from 1 to 0 nth 3")["rule"]
        ...                                             # the test
        assert lab.rule(rule)["applied"] == 1

Commands: docs/lab-faults.md.
"""

import json
import os
import socket


class Refused(Exception):
    """The lab did not do what it was told; the text says why."""


class Lab:
    """A connection to the control socket of a lab. Not for several threads at once: each has its own."""

    def __init__(self, place=None, timeout=60.0):
        """Connects to `place`, a path or "@" and an abstract name; without it to IRNIC_LAB_CONTROL's. An answer may take
        `timeout` seconds. Raises KeyError if neither is there, OSError if no lab is."""
        place = os.fsencode(place if place is not None else os.environ["IRNIC_LAB_CONTROL"])
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(b"\0" + place[1:] if place.startswith(b"@") else place)
            self._lines = self._socket.makefile("r", encoding="utf-8", newline="\n")
        except BaseException:
            self._socket.close()
            raise

    def ask(self, command):
        """Sends a command and returns the answer, a dict, when it has taken effect. Raises Refused with the lab's
        reason, ConnectionError if the lab has ended."""
        if "\n" in command or "\r" in command:
            raise ValueError("a command is one line")
        self._socket.sendall(command.encode() + b"\n")
        line = self._lines.readline()
        if not line.endswith("\n"):
            raise ConnectionError("the lab has ended")
        answer = json.loads(line)
        if not answer.pop("ok"):
            raise Refused(answer["error"])
        return answer

    def rule(self, number):
        """Returns the rule with this number: its text, its matches, and to how many frames it was applied."""
        for rule in self.ask("rules")["rules"]:
            if rule["rule"] == number:
                return rule
        raise KeyError(number)

    def close(self):
        """Closes the connection. Rules stay in force."""
        self._lines.close()
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
