# SPDX-License-Identifier: MIT
"""The admin API over the PostgreSQL store: the same tests as over SQLite, where they look from outside."""

import pytest

from support import postgres
from support.house import House
from support.poll import unique
from support.postgres import Postgres
from test_admin_lists import (Desk, test_a_call_that_nobody_knows_and_one_that_two_tenants_have, test_calls_are_listed_newest_first_with_all_they_are,
                              test_each_filter_finds_what_fits_and_nothing_else, test_one_call_shows_its_attempts_its_trace_and_what_was_changed,
                              test_pages_stay_good_while_calls_come, test_the_overview_counts)
from test_admin_tasks import (test_a_person_settles_a_call_with_evidence, test_a_round_can_be_asked_for_now,
                              test_many_are_settled_after_a_dry_run_that_named_them, test_tasks_are_listed_with_their_calls,
                              test_two_people_at_once_settle_each_task_once)

pytestmark = pytest.mark.skipif(not postgres.BIN, reason="PostgreSQL is not installed (scripts/deps test installs it)")

LISTS = {"plain": {"business_ref": "{header.X-Order}"}, "other": {}, "block": {"swapped_keys": "block"}}
TASKS = {"plain": {"rounds": 4}, "other": {}}


@pytest.fixture(scope="module")
def server():
    built = Postgres()
    yield built
    built.close()


@pytest.fixture
def house(server, request, tmp_path, started):
    """A house over a database of its own, as the module that the test comes from builds it over SQLite."""
    server.wait_ready()
    url = server.create_database(unique("db").replace("-", "_"))
    lists = request.function.__module__ == "test_admin_lists"
    who = {"tenant": "{header.X-Tenant}", "credential": "{header.X-User}"} if lists else {}
    built = House(tmp_path, LISTS if lists else TASKS, store=url, drain="1s", **who)
    started.append(built)
    return built


@pytest.fixture
def desk(house):
    return Desk(house.gateway)


def test_erasing_works_here_too(house, desk):
    from support.house import Step
    order = house.order("plain", Step(201, b"personal"))
    order.send()
    erased = desk.post(f"/v1/calls/{order.call_id}/erase", {"operator": "mei", "evidence": "request 17"})
    assert erased["state"] == "SUCCESS" and erased["result"]["body"] is None
    assert [(a["action"], a["operator"]) for a in erased["audit"]] == [("erase", "mei")]
