"""Two agents of NIXL: the initiator writes to the target's memory and reads back what the target makes of it, every byte
compared.

    agents.py {target,initiator} [BYTES]

Both run in one folder, through whose files they find each other. Transfers of 1 B to BYTES (1 MiB); in a lab the initiator
prints when the last two began and ended by the lab's clock, ns, and before them tells the lab what LAB_FAULT says.
"""

import ctypes
import os
import random
import sys
import time

from nixl_cu12._api import nixl_agent, nixl_agent_config

# Of this machine's time.
HANG = 300

role, largest = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 20
sizes = [size for size in (1, 64, 4096, 65536) if size < largest] + [largest]
peer = {"target": "initiator", "initiator": "target"}[role]
lab = None
if role == "initiator" and "IRNIC_LAB_CONTROL" in os.environ:
    from irnic_lab import Lab

    lab = Lab()


def put(name, content):
    with open(name + ".part", "wb") as file:
        file.write(content)
    os.rename(name + ".part", name)


def until(what, condition):
    end = time.monotonic() + HANG
    while True:
        found = condition()
        if found is not None:
            return found
        assert time.monotonic() < end, "waited in vain for " + what
        time.sleep(0.002)


def get(name):
    def read():
        try:
            with open(name, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    return until(name, read)


def pattern(length, seed):
    return random.Random(seed).randbytes(length)


agent = nixl_agent(role, nixl_agent_config(backends=["UCX"]))
memory = ctypes.create_string_buffer(largest)
here = ctypes.addressof(memory)
agent.register_memory([(here, largest, 0, "")], "DRAM")
put(role, agent.get_agent_metadata())
agent.add_remote_agent(get(peer))


def answer():
    """The target's part: what the initiator wrote is as it was, and becomes something else."""
    for seed, length in enumerate(sizes):
        until("a notification", lambda: agent.get_new_notifs().get(peer))
        assert memory.raw[:length] == pattern(length, seed), length
        memory[:length] = pattern(length, seed + 100)
        put("changed-%d" % length, b"")
    get("done")


def ask():
    there = int(get("address"))

    def transfer(operation, length, notification=b""):
        local, remote = (agent.get_xfer_descs([(at, length, 0)], "DRAM") for at in (here, there))
        handle = agent.initialize_xfer(operation, local, remote, peer, notification)
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        assert state == "DONE", "%s: %s" % (operation, state)
        agent.release_xfer_handle(handle)

    for seed, length in enumerate(sizes):
        memory[:length] = pattern(length, seed)
        took = []
        for operation in "WRITE", "READ":
            if lab and length == largest:
                took.append(lab.ask("time")["ns"])
                if operation == "WRITE" and "LAB_FAULT" in os.environ:
                    print("began", took[0], file=sys.stderr, flush=True)
                    lab.ask(os.environ["LAB_FAULT"])
            transfer(operation, length, *([b"written"] if operation == "WRITE" else []))
            if lab and length == largest:
                took.append(lab.ask("time")["ns"])
            if operation == "WRITE":
                get("changed-%d" % length)
                memory[:length] = bytes(length)
        assert memory.raw[:length] == pattern(length, seed + 100), length
    put("done", b"")
    if took:
        # Without the time that the target took to look at what was written.
        print("ns", took[0], took[1] + took[3] - took[2])


if role == "target":
    put("address", str(here).encode())
    answer()
else:
    ask()
print(role, "is right", flush=True)
