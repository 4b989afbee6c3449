"""The package irnic, without pytest: python3 -m unittest, with the package in PYTHONPATH and irnic in IRNIC or PATH."""

import os
import subprocess
import sys
import unittest

import irnic

BANDWIDTH = ["ib_write_bw", "-d", "irnic0", "-n", "50", "-p"]


class Labs(unittest.TestCase):
    def test_programs_run_on_hosts_and_frames_are_lost(self):
        with irnic.lab("star:hosts=3,rate=10G", transport="roce", seed=7) as lab:
            self.assertEqual((lab.hosts, lab.address(2)), (3, "127.77.0.3"))
            lost = lab.drop("data", from_host=1, to_host=0, nth=3)
            late = lab.delay("20us", "ack", count=2)
            server = lab.start(0, [*BANDWIDTH, "18600"])
            server.wait_for_listener(18600)
            output = lab.run(1, [*BANDWIDTH, "18600", lab.address(0)])
            self.assertIn(" 65536 ", output)
            self.assertIn(" 65536 ", server.finish())
            self.assertEqual((lost.applied, late.applied), (1, 2))
            self.assertGreater(lost.matches, 3_000)
            late.clear()
            self.assertRaises(KeyError, lambda: late.applied)
            self.assertGreater(lab.time(), 1_000_000)
            self.assertEqual(lab.stats()["lost"], 1)
            lab.link_down("h2-s0", lasts="1us")
            lab.pause(3, 2)
            lab.resume(3, 2)
            lab.clear()
        self.assertEqual((lab.results["lost"], lab.results["hosts"]), (1, 3))
        self.assertIn("lab: 3 hosts", lab.summary)

    def test_a_host_is_killed(self):
        with irnic.lab() as lab:
            server = lab.start(0, [*BANDWIDTH, "18601"])
            server.wait_for_listener(18601)
            client = lab.start(1, ["ib_write_bw", "-d", "irnic0", "--run_infinitely", "-p", "18602"])
            client.wait_for_listener(18602)
            self.assertEqual(lab.kill(1), [client.pid])
            self.assertEqual(client.wait(10), -9)
        # It was left running.
        self.assertIsNotNone(server.returncode)

    def test_what_fails_is_raised(self):
        with irnic.lab() as lab:
            with self.assertRaisesRegex(irnic.Refused, '"acks": expected from, to'):
                lab.ask("drop acks")
            with self.assertRaises(ValueError):
                lab.ask("rules\nclear")
            with self.assertRaises(IndexError):
                lab.start(2, ["true"])
            with self.assertRaises(subprocess.CalledProcessError) as failed:
                lab.run(1, ["sh", "-c", "echo $IRNIC_LAB_HOST; exit 4"])
            self.assertEqual((failed.exception.returncode, failed.exception.output), (4, "1\n"))
            with self.assertRaises(subprocess.TimeoutExpired):
                lab.run(0, ["sleep", "60"], timeout=0.1)
            with self.assertRaises(ChildProcessError):
                lab.start(0, ["true"]).wait_for_listener(18603)
        with self.assertRaisesRegex(RuntimeError, "star: hosts=0: expected a number"):
            with irnic.lab("star:hosts=0"):
                pass

    def test_a_program_runs_on_a_nic_and_ends_with_its_block(self):
        options = {"impair": "loss 1%", "address": "127.0.0.1", "stats": True}
        with irnic.run([*BANDWIDTH, "18604"], **options) as server:
            server.wait_for_listener(18604)
        self.assertEqual(server.returncode, -15)

    def test_the_module_is_the_command(self):
        output = subprocess.run([sys.executable, "-m", "irnic", "--version"], stdout=subprocess.PIPE, check=True).stdout
        self.assertRegex(output.decode(), r"^irnic \d")
        environment = dict(os.environ, IRNIC="/no/such/program")
        failed = subprocess.run([sys.executable, "-m", "irnic"], env=environment, stderr=subprocess.PIPE)
        self.assertIn("/no/such/program", failed.stderr.decode())


if __name__ == "__main__":
    unittest.main()
