# SPDX-License-Identifier: MIT
"""Case 29: values of Retry-After through the socket, in small: seconds stand for minutes and this hour for that noon.
The values as they are written, with a clock of their own, are test/unit/core/test_retry_after.c."""

import email.utils
import time

import pytest

from support.house import House, Step
from support.stub import case_json
from support.upstream import receipt

NAME = "29-retry-after-values"
TICK = 0.01
BASE, CAP = 0.3, 0.6  # own backoff: between half the base and the cap


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("case29"), {
        "orders": {"backoff_base": "300ms", "backoff_cap": "600ms", "retry_after_max": "3s", "deadline": "10s"},
        "hasty": {"backoff_base": "300ms", "backoff_cap": "600ms", "retry_after_max": "300s", "deadline": "4s"},
    })
    yield built
    assert built.close() == 0


def waited(house, headers, route="orders"):
    order = house.order(route, Step(429, headers=headers), Step(201))
    answer = order.send()
    assert (answer.status, len(order.posts)) == (201, 2)
    return order.posts[1].t - order.posts[0].ended


def values(kind):
    """The case's own values of a kind, so that a new row there is a new row here."""
    return [row["retry_after"] for row in case_json(NAME, "values.json")["rows"] if str(row["wait_s"]).startswith(kind)]


def own(seconds):
    assert BASE / 2 - TICK <= seconds <= CAP + 1


@pytest.mark.parametrize("value", values("ignored") or ["the case is missing"])
def test_what_is_no_retry_after_is_ignored(house, value):
    own(waited(house, {"Retry-After": value}))


@pytest.mark.parametrize("value", values("own backoff") or ["the case is missing"])
def test_zero_and_past_dates_are_no_hot_loop(house, value):
    own(waited(house, {"Retry-After": value}))


@pytest.mark.parametrize("value", ["2", "  2  "])
def test_seconds_are_as_written(house, value):
    assert 2 - TICK <= waited(house, {"Retry-After": value}) <= 2 * 1.1 + 1


def imf(t):
    return email.utils.formatdate(t, usegmt=True)


def rfc850(t):
    return time.strftime("%A, %d-%b-%y %H:%M:%S GMT", time.gmtime(t))


def asctime(t):
    return time.asctime(time.gmtime(t))


@pytest.mark.parametrize("form", [imf, rfc850, asctime])
def test_dates_are_as_written(house, form):
    order = house.order("orders")
    due = []

    def headers(seen):
        due.append(int(time.time()) + 2)
        return {"Retry-After": form(due[0])}

    arrived = []

    def body(seen):
        arrived.append(time.time())
        return b"done"

    order.script(Step(429, headers=headers), Step(201, body))
    assert order.send().status == 201
    assert due[0] - TICK <= arrived[0] <= due[0] + 0.2 + 1


def test_more_digits_than_a_number_are_the_longest_wait(house):
    many = next(v for v in values("the policy") if v.isdigit())
    assert 3 - TICK <= waited(house, {"Retry-After": many}) <= 3 * 1.1 + 1


def test_two_headers(house):
    seconds = waited(house, [("Retry-After", "1"), ("Retry-After", "2")])
    # The later one; never under the shorter.
    assert 2 - TICK <= seconds <= 2 * 1.1 + 1


def test_what_does_not_fit_stops_at_once_and_says_when(house):
    row = next(r for r in case_json(NAME, "values.json")["rows"] if "deadline_s" in r)
    order = house.order("hasty", Step(429, headers={"Retry-After": row["retry_after"]}), Step(201))
    began = time.monotonic()
    answer = order.send()
    assert time.monotonic() - began < 2
    assert (answer.status, answer.outcome, answer.get("Retry-After")) == (429, "not-executed", row["retry_after"])
    assert len(order.posts) == 1 and order.receipt().json()["next_action"] == "retry_same_call"


def test_the_deadline_is_the_calls_over_all_attempts(house):
    # Two waits of 2 s: the second no longer fits into 4 s with its attempt.
    order = house.order("hasty", Step(429, headers={"Retry-After": "2"}))
    began = time.monotonic()
    assert order.send().outcome == "not-executed"
    assert time.monotonic() - began < 4.5 and len(order.posts) == 2
