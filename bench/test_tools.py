#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The measuring tools, measured: counts, sets that two processes share, open loop, slow answers, and that a server
which loses or repeats calls is noticed. `bench/test_tools.py BUILD` with bench_load and bench_callee in BUILD."""

import argparse
import json
import pathlib
import socket
import sqlite3
import sys
import tempfile
import threading
import unittest

import harness
import measure
import targets

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

    def test_headers_and_the_content_type_are_sent(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            heads = []

            def serve():
                peer, _ = listener.accept()
                with peer:
                    heads.append(peer.recv(65536).split(b"\r\n\r\n")[0].split(b"\r\n"))
                    peer.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

            thread = threading.Thread(target=serve)
            thread.start()
            self.load("unique", 1, port=listener.getsockname()[1], requests=1, header="X-Tenant: t-7",
                      content_type="text/plain")
            thread.join(10)
        self.assertEqual((heads[0].count(b"X-Tenant: t-7"), heads[0].count(b"Content-Type: text/plain")), (1, 1))

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


class Floor(unittest.TestCase):
    def test_every_call_has_a_claim_and_an_ending_and_a_key_that_is_taken_goes_nowhere(self):
        with tempfile.TemporaryDirectory() as work, harness.start_callee(BUILD, work) as callee:
            with harness.start_floor(BUILD, work, callee.port) as floor:
                results = [harness.finished(harness.start_load(BUILD, floor.port, "unique", 16, 5, requests=500, seed=7), 5)
                           for _ in range(2)]
                odd, _ = harness.ask(floor.port, "POST", "/orders", "{}", headers={"Idempotency-Key": "order-1"})
            self.assertEqual([result["status"] for result in results], [{"201": 500}, {"409": 500}])
            self.assertEqual(odd, 400)
            counted = harness.count(callee)
            self.assertEqual((counted["executions"], counted["distinct"]), (500, 500))
            db = sqlite3.connect(pathlib.Path(work) / "floor-0" / "calls.db")
            claimed = {key.hex() for key, in db.execute("SELECT key FROM call JOIN ending USING (id)"
                                                        " WHERE CAST(answer AS TEXT) LIKE 'HTTP/1.1 201%thank you for your order%'")}
            db.close()
            ones = (1 << 64) - 1
            self.assertTrue(claimed == {harness.call_id(~7 & ones, n) for n in range(500)}, len(claimed))


class Fill(unittest.TestCase):
    def test_a_filled_store_has_what_was_asked_for_and_more_on_disk_than_it_stores(self):
        with tempfile.TemporaryDirectory() as work:
            options = argparse.Namespace(build=BUILD)
            place = pathlib.Path(work) / "few.db"
            told = measure.fill(options, place, 3000)
            size = measure.stored_bytes(place)
            self.assertEqual((told["rows"], size["rows"]), (3000, 3000))
            self.assertTrue(size["disk"] > size["stored"] > 400, size)
            # What is there is used, not filled again.
            self.assertEqual(measure.fill(options, place, 3000), told)
            db = sqlite3.connect(place)
            self.assertEqual({harness.call_id(told["seed"], n) for n in range(3000)},
                             {text for text, in db.execute("SELECT call_id FROM call WHERE state = 3")})
            db.close()

    def test_numbers_count_as_short_as_they_can_be_written(self):
        self.assertEqual([measure.value_bytes(v) for v in (None, 0, 1, 2, -129, 40000, 1795966679162, "é", b"abc")],
                         [0, 0, 0, 1, 2, 3, 6, 2, 3])


def repeat(**speeds):
    return {name.replace("_", "-"): {"per_s": value, "latency_us": {"p50": 100.0, "p99": 300.0}}
            for name, value in speeds.items()}


class Table(unittest.TestCase):
    """The judgement, on figures made up: medians of ratios within a repeat, and the three verdicts."""

    def judged(self, row, results, number=0):
        return [t for t in targets.targets() if t.row == row][number].judged(results)

    def test_a_ratio_is_made_within_a_repeat_and_the_median_is_judged(self):
        speed = [repeat(unique_256_gateway=g, unique_256_nginx=n) for g, n in ((50, 100), (90, 100), (30, 10))]
        line = self.judged("nginx", {"speed": speed})
        self.assertEqual((line["measured"], line["least"], line["most"], line["met"]), (0.9, 0.5, 3.0, "aim"))
        self.assertAlmostEqual(line["of_must"], 0.9 / 0.40)
        self.assertEqual(self.judged("nginx", {"speed": speed[:1]})["met"], "must")
        self.assertEqual(self.judged("nginx", {"speed": [repeat(unique_256_gateway=39, unique_256_nginx=100)]})["met"],
                         "no")

    def test_a_run_that_does_not_count_gives_no_figure(self):
        speed = repeat(unique_256_gateway=50, unique_256_nginx=100)
        speed["unique-256-nginx"] = {"wrong": "two executions"}
        for row, results in (("nginx", {"speed": [speed]}), ("same", {"same": [{"wrong": "lost"}]})):
            line = self.judged(row, results)
            self.assertEqual((line["measured"], line["met"]), (None, "no"))
            self.assertIn("no run counts", list(targets.table([line]))[-1])

    def test_the_fastest_peer_of_each_repeat_counts(self):
        speed = [repeat(unique_256_gateway=40, unique_256_lua_redis_always=10, unique_256_node_idempotency=20)]
        self.assertEqual(self.judged("peers", {"speed": speed})["measured"], 2.0)

    def test_less_is_better_where_it_is_and_the_disk_sets_the_bound(self):
        results = {"speed": [repeat(unique_1_gateway=1)], "fdatasync_us": 100.0}
        line = self.judged("alone", results)
        self.assertEqual((line["must"], line["measured"], line["met"]), (450.0, 100.0, "aim"))
        self.assertEqual(self.judged("tail", results | {"speed": [repeat(unique_64_gateway=1)]})["met"], "must")
        self.assertEqual(self.judged("same", {"same": [{"executions_most": 2, "equal_least": 64}]})["met"], "no")

    def test_a_row_without_bounds_is_told_and_cannot_fail(self):
        line = self.judged("floor", {"speed": [repeat(unique_256_floor=30, unique_256_nginx=100)]})
        self.assertEqual((line["measured"], line["met"], line["of_must"]), (0.3, "told", None))
        self.assertIn("| – | – | 0.30 (0.30–0.30) | – | – |", list(targets.table([line]))[-1])

    def test_every_row_is_printed_with_its_bounds(self):
        line = self.judged("same", {"same": [{"executions_most": 1, "equal_least": 64}]})
        *_, printed = targets.table([line])
        self.assertIn("≤ 1 |", printed)
        self.assertIn("must and aim", printed)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
