#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The measuring tools, measured: counts, sets that two processes share, open loop, slow answers, and that a server
which loses or repeats calls is noticed. `bench/test_tools.py BUILD` with bench_load and bench_callee in BUILD."""

import json
import pathlib
import socket
import sys
import tempfile
import threading
import unittest

import harness

BUILD = pathlib.Path(".")


class Tools(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.callee = harness.start_callee(BUILD, self.work.name, slow_ms=200)

    def tearDown(self):
        self.callee.stop()
        self.work.cleanup()

    def load(self, mode, connections, seconds=5, port=None, **more):
        return harness.finished(
            harness.start_load(BUILD, port or self.callee.port, mode, connections, seconds, **more), seconds)

    def test_every_unique_call_is_counted_once(self):
        result = self.load("unique", 16, requests=5000)
        self.assertEqual((result["sent"], result["status"], result["connects"]), (5000, {"201": 5000}, 16))
        counted = harness.count(self.callee)
        self.assertEqual((counted["executions"], counted["distinct"], counted["repeats"]), (5000, 5000, 0))
        harness.check_counts("unique", result, dict.fromkeys(counted, 0), counted, True)

    def test_a_replay_reaches_a_bare_callee_again_and_is_noticed(self):
        result = self.load("replay", 4, requests=300, set=100)
        counted = harness.count(self.callee)
        self.assertEqual((counted["executions"], counted["distinct"], counted["repeats"]), (400, 100, 300))
        with self.assertRaises(harness.Wrong):
            harness.check_counts("replay", result, dict.fromkeys(counted, 0), counted, True)

    def test_one_seed_is_one_set_in_two_processes(self):
        for _ in range(2):
            self.load("unique", 3, requests=50, seed=7)
        counted = harness.count(self.callee)
        self.assertEqual((counted["distinct"], counted["repeats"]), (50, 50))

    def test_ids_are_the_same_in_python(self):
        """A raw listener sees the ids that harness.call_id() foretells."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            heads = []

            def serve():
                peer, _ = listener.accept()
                with peer:
                    heads.append(peer.recv(65536))
                    peer.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

            thread = threading.Thread(target=serve)
            thread.start()
            self.load("unique", 1, port=listener.getsockname()[1], requests=1, seed=123456789)
            thread.join(10)
        self.assertIn(f"X-Call-Id: {harness.call_id(123456789, 0)}\r\n".encode(), heads[0])
        body = heads[0].split(b"\r\n\r\n", 1)[1]
        self.assertTrue(150 < len(body) < 250 and json.loads(body), body)

    def test_open_loop_keeps_its_rate_and_counts_waiting_from_when_a_send_was_due(self):
        result = self.load("get", 100, seconds=1, rate=200)
        self.assertEqual(result["due"], 200)
        self.assertTrue(180 <= result["sent"] <= 200, result)
        # One connection, answers take 200 ms, 20 sends a second are due: the later ones wait for the earlier.
        result = self.load("unique", 1, seconds=1, rate=20, path="/slow")
        self.assertLess(result["sent"], 10)
        self.assertGreater(result["latency_us"]["max"], 400_000)

    def test_percentiles_tell_a_slow_answer(self):
        result = self.load("unique", 8, requests=16, path="/slow/x")
        self.assertTrue(195_000 <= result["latency_us"]["p50"] <= 1_000_000, result)

    def test_a_lost_connection_is_an_error_and_nothing_is_sent_again(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            heads = []

            def serve():
                for _ in range(3):
                    peer, _ = listener.accept()
                    with peer:
                        heads.append(peer.recv(65536))

            thread = threading.Thread(target=serve)
            thread.start()
            result = self.load("unique", 1, port=listener.getsockname()[1], requests=3)
            thread.join(10)
        self.assertEqual((result["sent"], result["errors"], result["completed"]), (3, 3, 0))
        ids = {head.split(b"X-Call-Id: ")[1][:32] for head in heads}
        self.assertEqual(len(ids), 3)
        with self.assertRaises(harness.Wrong):
            harness.check_answers(result, {201})

    def test_a_full_table_and_odd_ids_are_said(self):
        self.callee.stop()
        self.callee = harness.Program("small", [str(BUILD / "bench_callee"), "--table-log", "4", "--port",
                                                str(self.callee.port)], self.callee.port, self.work.name, "/count")
        self.load("unique", 1, requests=40)
        harness.ask(self.callee.port, "POST", "/orders", "x")
        counted = harness.count(self.callee)
        self.assertTrue(counted["overflow"])
        self.assertEqual((counted["executions"], counted["without_id"]), (41, 1))
        harness.ask(self.callee.port, "POST", "/reset")
        self.assertEqual(harness.count(self.callee)["executions"], 0)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
