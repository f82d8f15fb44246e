# SPDX-License-Identifier: MIT
"""Case 16: COMMIT was sent and its answer never came; and the same with a cut at every message of the connection."""

import subprocess

import pytest

from guard import receipt
from support.pg_cut import Cut
from support.stub import case

NAME = "16-commit-answer-lost"


@pytest.fixture
def shop(server, name, order_tool):
    server.sql((case(NAME) / "setup.sql").read_text(encoding="utf-8"), name)
    return Shop(server, name, order_tool)


class Shop:
    def __init__(self, server, name, tool):
        self.server, self.name, self.tool = server, name, tool

    def run(self, proxy, call_id="c-161", order="o-161"):
        url = f"postgres://samekey@127.0.0.1:{proxy.port}/{self.name}?sslmode=disable"
        done = subprocess.run([self.tool, url, call_id, order, "10"], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.splitlines()

    def rows(self, order="o-161"):
        return int(self.server.sql(f"SELECT count(*) FROM orders WHERE order_no = '{order}'", self.name)[0][0])

    def committed(self, call_id="c-161"):
        return self.server.sql(f"SELECT count(*) FROM samekey.call WHERE call_id = '{call_id}'", self.name) == [["1"]]

    def settled(self, call_id="c-161"):
        """For a proxy that passed a message on: a COMMIT has happened, everything else need not have."""
        return lambda kind, body: not is_commit(True, kind, body) or self.committed(call_id)

    def url(self):
        return self.server.url(self.name)


def is_commit(to_server, kind, body):
    return to_server and kind == b"Q" and body.upper().startswith(b"COMMIT")


def test_variant_a_the_commit_arrived(shop, started):
    proxy = Cut(shop.server.port, way="after", at=is_commit, settled=shop.settled())
    started.append(proxy)
    assert shop.run(proxy) == (0, ["handler ran", "commit unknown, then committed"])
    assert proxy.fired.wait(10) and shop.rows() == 1
    assert receipt(shop.url(), "c-161")["state"] == "SUCCESS"


def test_variant_b_the_commit_never_arrived(shop, started):
    proxy = Cut(shop.server.port, way="before", at=is_commit)
    started.append(proxy)
    assert shop.run(proxy) == (0, ["handler ran", "commit unknown, then not committed", "handler ran", "commit committed, then committed"])
    assert proxy.fired.wait(10) and shop.rows() == 1
    assert receipt(shop.url(), "c-161")["state"] == "SUCCESS"


@pytest.mark.parametrize("way", ["before", "after"])
def test_the_database_unreachable_after_the_cut_stays_unknown(shop, started, way):
    proxy = Cut(shop.server.port, way=way, at=is_commit, settled=shop.settled())
    proxy.refusing = True
    started.append(proxy)
    code, said = shop.run(proxy)
    assert code == 4 and said[:2] == ["handler ran", "commit unknown, then unknown"]
    word, call_id, run = said[2].split()
    assert (word, call_id) == ("unsettled", "c-161")
    # Looked at later, when the database is back.
    expected = "committed" if way == "after" else "not_committed"
    assert shop.server.sql(f"SELECT samekey.settled('c-161', '{run}')", shop.name) == [[expected]]
    assert shop.rows() == (1 if way == "after" else 0)


def test_a_commit_that_is_still_under_way_is_not_called_lost(shop, server, name):
    """The connection broke, the server has not noticed: nobody may say that nothing happened."""
    import psycopg2
    from guard import begin
    with psycopg2.connect(shop.url()) as holder, holder.cursor() as cursor:
        run = begin(cursor, "c-162")["run"]
        assert server.sql(f"SELECT samekey.settled('c-162', '{run}', wait_ms => 100)", name) == [["unknown"]]
        assert receipt(shop.url(), "c-162")["state"] == "NOT_RECEIVED"  # as far as it is committed
        assert receipt(shop.url(), "c-162", wait_ms=50)["state"] == "PROCESSING"
        holder.rollback()
    assert server.sql(f"SELECT samekey.settled('c-162', '{run}')", name) == [["not_committed"]]
    assert receipt(shop.url(), "c-162", wait_ms=50)["state"] == "NOT_RECEIVED"


def test_a_cut_at_every_message(shop, started):
    """First the conversation is counted; then it is held again and again, cut at one message further each time."""
    whole = Cut(shop.server.port)
    started.append(whole)
    assert shop.run(whole, "c-0", "o-0")[0] == 0
    count = len(whole.seen)
    assert count > 30  # start, BEGIN, begin, the row, finish, COMMIT, and their answers
    words = set()
    for number in range(1, count + 1):
        for way in ("before", "after"):
            call_id, order = f"c-{number}-{way}", f"o-{number}-{way}"
            proxy = Cut(shop.server.port, number, way, shop.settled(call_id))
            started.append(proxy)
            code, said = shop.run(proxy, call_id, order)
            assert code == 0, (number, way, said)
            assert shop.rows(order) == 1, (number, way, said)
            runs = said.count("handler ran")
            assert runs <= 2, (number, way, said)
            words |= {line for line in said if line.startswith("commit")}
    assert words == {"commit committed, then committed", "commit unknown, then committed", "commit unknown, then not committed"}
