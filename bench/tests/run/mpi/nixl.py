"""Two agents of NIXL: the initiator writes to the target's memory and reads back what the target makes of it, every byte
compared. `nixl.py {target,initiator}`, both in one folder, through whose files they find each other."""

import ctypes
import os
import sys
import time

from nixl_cu12._api import nixl_agent, nixl_agent_config

SIZES = [1, 64, 4096, 65536, 1 << 20]
HANG = 120

role = sys.argv[1]
peer = {"target": "initiator", "initiator": "target"}[role]


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
    return bytes((seed + at + at // 251) & 255 for at in range(length))


agent = nixl_agent(role, nixl_agent_config(backends=["UCX"]))
memory = ctypes.create_string_buffer(SIZES[-1])
here = ctypes.addressof(memory)
agent.register_memory([(here, SIZES[-1], 0, "")], "DRAM")
put(role, agent.get_agent_metadata())
agent.add_remote_agent(get(peer))

if role == "target":
    put("address", str(here).encode())
    for seed, length in enumerate(SIZES):
        until("a notification", lambda: agent.get_new_notifs().get(peer))
        assert memory.raw[:length] == pattern(length, seed), length
        memory[:length] = pattern(length, seed + 100)
        put("changed-%d" % length, b"")
    get("done")
else:
    there = int(get("address"))

    def transfer(operation, length, notification=b""):
        local, remote = (agent.get_xfer_descs([(at, length, 0)], "DRAM") for at in (here, there))
        handle = agent.initialize_xfer(operation, local, remote, peer, notification)
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        assert state == "DONE", state
        agent.release_xfer_handle(handle)

    for seed, length in enumerate(SIZES):
        memory[:length] = pattern(length, seed)
        transfer("WRITE", length, b"written")
        get("changed-%d" % length)
        memory[:length] = bytes(length)
        transfer("READ", length)
        assert memory.raw[:length] == pattern(length, seed + 100), length
    put("done", b"")
print(role, "is right", flush=True)
