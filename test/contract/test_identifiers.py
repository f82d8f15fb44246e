# SPDX-License-Identifier: MIT
"""CONTRACT section 2 through the socket: callIds, keys, fingerprints, and what the upstream sees of them."""

import concurrent.futures
import gzip
import json
import re

import pytest

from support.house import House, Step
from support.poll import unique
from support.wire import Wire, request

MADE = re.compile(r"[A-Za-z0-9._:-]+-(\d{13})-[0-9a-f]{12}-node07")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("identifiers"), {
        "plain": {"receipt": "http GET /receipts/{call_id}"},
        "strict": {"key_missing": "refuse"},
        "template": {"key_missing": "refuse", "key": "order:{json.order}:create", "business_ref": "{json.order}"},
        "body": {"call_id": "{json.meta.call_id}"},
        "fields": {"compare": "json.amount, json.currency"},
        "ignoring": {"ignore": ["json.sent_at", "json.meta.nonce"]},
        "puts": {"methods": ["POST", "PUT", "PATCH", "DELETE"]},
    }, tenant="{header.X-Tenant}", call_id_prefix="ord")
    yield built
    assert built.close() == 0


T = {"X-Tenant": "t1"}


def guarded(answer, call_id, source="caller", outcome="success"):
    """The lines that every guarded answer has, once each."""
    assert answer.all("X-Call-Id") == [call_id]
    assert answer.all("X-Call-Id-Source") == [source]
    assert answer.all("Call-Outcome") == [outcome]
    assert f'</.samekey/receipts/{call_id}>; rel="receipt"' in answer.all("Link")


# ---- callIds

@pytest.mark.parametrize("call_id", ["x", "A.b_c:d-9", "0" * 128])
def test_call_ids_that_are_accepted(house, call_id):
    order = house.order("plain", Step())
    call_id = call_id if len(call_id) == 128 else call_id + unique("")
    answer = order.send(call_id, headers=T)
    assert answer.status == 201
    guarded(answer, call_id)
    assert [p.all("X-Call-Id") for p in order.posts] == [[call_id]]


@pytest.mark.parametrize("call_id", ["", "0" * 129, "a b", "a/b", "caf\xe9", '"c"', "a\tb", "a%20b", "a,b"])
def test_call_ids_that_are_refused(house, call_id):
    order = house.order("plain", Step())
    answer = house.gateway.send(request("POST", order.path, {"X-Call-Id": call_id, **T}, b"x"))
    assert (answer.status, answer.slug, answer.outcome) == (400, "call-id-invalid", "rejected")
    assert not order.posts


def test_two_call_ids_in_one_request_are_refused(house):
    order = house.order("plain", Step())
    answer = order.send(None, headers={**T, "X-Call-Id": ["c-1", "c-2"]})
    assert (answer.status, answer.slug) == (400, "call-id-invalid") and not order.posts


def test_a_call_id_is_made_where_the_caller_has_none(house):
    order = house.order("plain", Step())
    answer = order.send(None, headers=T)
    made = answer.get("X-Call-Id")
    assert MADE.fullmatch(made) and made.startswith("ord-")
    guarded(answer, made, "gateway")
    assert order.posts[0].get("X-Call-Id") == made and order.posts[0].get("X-Call-Id-Source") == "gateway"
    assert house.gateway.receipt(made, headers=T).json()["call_id_source"] == "gateway"
    entry = house.gateway.logged(made)[-1]
    assert list(json.loads(entry["_line"]))[0] == "call_id"
    assert entry.get("call_id_source") == "gateway"


def test_made_call_ids_never_repeat(house):
    def some(number):
        with Wire(house.gateway.port) as wire:
            for _ in range(25):
                wire.send(request("POST", f"/plain/{unique('n')}", T, b"{}"))
                yield wire.answer().get("X-Call-Id")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = [one for batch in pool.map(lambda n: list(some(n)), range(8)) for one in batch]
    assert len(set(made)) == 200 and all(MADE.fullmatch(one) for one in made)


def test_the_source_line_is_not_sent_upstream_for_a_callers_own_id(house):
    order = house.order("plain", Step())
    guarded(order.send(headers={**T, "X-Call-Id-Source": "gateway"}), order.call_id, "caller")
    assert order.posts[0].all("X-Call-Id-Source") in ([], ["caller"])


def test_a_call_id_is_unique_per_tenant(house):
    first, second = house.order("plain", Step()), house.order("plain", Step())
    assert first.send("shared-id", headers=T).status == 201
    assert second.send("shared-id", headers={"X-Tenant": "t2"}).status == 201
    assert len(first.posts) == len(second.posts) == 1
    assert second.send("shared-id", headers=T).slug == "call-id-reused"


def test_the_call_id_may_be_in_the_body(house):
    order = house.order("body", Step())
    body = json.dumps({"order": order.name, "meta": {"call_id": order.call_id}})
    answer = order.send(None, body=body, headers=T)
    assert answer.status == 201
    guarded(answer, order.call_id)
    assert order.posts[0].get("X-Call-Id") == order.call_id and order.posts[0].body == body.encode()
    assert order.send(None, body=body, headers=T).replayed and len(order.posts) == 1


def test_a_bad_call_id_in_the_body_is_refused(house):
    order = house.order("body", Step())
    answer = order.send(None, body='{"meta":{"call_id":"a b"}}', headers=T)
    assert (answer.status, answer.slug) == (400, "call-id-invalid") and not order.posts


@pytest.mark.parametrize("second, status", [("t2", 400), ("t1", 201)])
def test_a_tenant_that_is_named_twice_is_one_or_none(house, second, status):
    """The service behind may read the other line."""
    order = house.order("plain", Step())
    answer = order.send(headers={"X-Tenant": ["t1", second]})
    assert answer.status in (status, 400) and len(order.posts) == (1 if answer.status == 201 else 0)


# ---- keys

@pytest.mark.parametrize("key", ["k", "~!#$%&'()*+,-./:;<=>?@[]^_`{|}", "x" * 255])
def test_keys_that_are_accepted(house, key):
    order = house.order("plain", Step())
    assert order.send(key=key, headers=T).status == 201
    assert order.posts[0].all("Idempotency-Key") == [key]
    assert order.receipt(headers=T).json()["key"] == key


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "caf\xe9", '"a b"', '""', '"' + "x" * 256 + '"'])
def test_keys_that_are_refused(house, key):
    order = house.order("plain", Step())
    answer = order.send(key=key, headers=T)
    assert (answer.status, answer.slug, answer.outcome) == (400, "key-invalid", "rejected") and not order.posts


def test_a_quoted_key_and_the_bare_one_are_the_same(house):
    order = house.order("plain", Step())
    assert order.send(key=f'"{order.key}"', headers=T).status == 201
    assert order.send(headers=T).replayed
    again = order.send(unique("c"), headers=T)
    assert again.replayed and again.get("X-Original-Call-Id") == order.call_id
    # Upstream sees it as the first claim spelled it.
    assert [p.get("Idempotency-Key") for p in order.posts] == [f'"{order.key}"']


def test_the_key_repeated_with_one_value_is_one_key_with_two_it_is_invalid(house):
    order = house.order("plain", Step())
    answer = order.send(key=None, headers={**T, "Idempotency-Key": [order.key, "other"]})
    assert (answer.status, answer.slug) == (400, "key-invalid") and not order.posts
    assert order.send(key=None, headers={**T, "Idempotency-Key": [order.key, f'"{order.key}"']}).status == 201
    assert order.send(headers=T).replayed and len(order.posts) == 1


def test_the_case_of_a_key_matters(house):
    order = house.order("plain", Step())
    assert order.send(unique("c"), "Key-" + order.name, headers=T).status == 201
    assert not order.send(unique("c"), "key-" + order.name, headers=T).replayed
    assert len(order.posts) == 2


@pytest.mark.parametrize("one, other", [(("t1", "x:y"), ("t1:x", "y")), (("a", "b|c"), ("a|b", "c")),
                                        (("q", '1/plain'), ("q/1", "plain"))])
def test_the_parts_of_a_scope_never_run_into_each_other(house, one, other):
    order = house.order("plain", Step())
    for tenant, key in (one, other):
        assert not order.send(unique("c"), key + order.name, headers={"X-Tenant": tenant}).replayed
    assert len(order.posts) == 2


def test_the_key_may_come_from_a_template(house):
    order = house.order("template", Step())
    answer = order.send(key=None, headers=T)
    assert answer.status == 201
    assert order.posts[0].get("Idempotency-Key") == f"order:{order.name}:create"
    document = order.receipt(headers=T).json()
    assert (document["key"], document["business_ref"]) == (f"order:{order.name}:create", order.name)
    again = order.send(unique("c"), None, headers=T)
    assert again.replayed and again.get("X-Original-Call-Id") == order.call_id and len(order.posts) == 1


def test_a_callers_own_key_goes_up_as_it_is_beside_a_template(house):
    order = house.order("template", Step())
    assert order.send(key="mine", headers=T).status == 201
    assert order.posts[0].all("Idempotency-Key") == ["mine"]


@pytest.mark.parametrize("body", ['{}', '{"order":null}', '{"order":""}', '{"other":1}'])
def test_a_template_with_a_missing_part_is_key_missing(house, body):
    order = house.order("template", Step())
    answer = order.send(key=None, body=body, headers=T)
    assert (answer.status, answer.slug, answer.outcome) == (400, "key-missing", "rejected") and not order.posts


def test_a_call_id_does_not_replace_a_required_key(house):
    order = house.order("strict", Step())
    answer = order.send(key=None, headers=T)
    assert (answer.status, answer.slug) == (400, "key-missing") and not order.posts


# ---- what a repeat must share

JSON = {"Content-Type": "application/json", **T}


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "application/vnd.order+json"])
def test_json_is_compared_by_meaning(house, kind):
    order = house.order("plain", Step())
    headers = {**T, "Content-Type": kind}
    assert order.send(body='{"a":1,"b":[1.50,"\\u00e9"]}', headers=headers).status == 201
    assert order.send(body='{ "b" : [15e-1, "é"], "a" : 1 }'.encode(), headers=headers).replayed
    assert order.send(body='{"a":1,"b":["\\u00e9",1.50]}', headers=headers).slug == "call-id-reused"
    assert order.send(body='{"a":"1","b":[1.50,"é"]}'.encode(), headers=headers).slug == "call-id-reused"
    assert len(order.posts) == 1


def test_numbers_are_exact_and_exponents_are_not_expanded(house):
    order = house.order("plain", Step())
    assert order.send(body='{"n":1e999999999}', headers=JSON).status == 201
    assert order.send(body='{"n":10e999999998}', headers=JSON).replayed
    assert order.send(body='{"n":1e999999998}', headers=JSON).slug == "call-id-reused"
    other = house.order("plain", Step())
    assert other.send(body='{"n":0.1}', headers=JSON).status == 201
    assert other.send(body='{"n":0.1000000000000000000000001}', headers=JSON).slug == "call-id-reused"


@pytest.mark.parametrize("body", ['{"a":1,"a":1}', '{"a":', 'nothing', '{"a":1}x', '{"x":{"b":1,"b":2}}', '{"\\u0061":1,"a":2}'])
def test_json_that_is_none_is_body_invalid(house, body):
    order = house.order("plain", Step())
    answer = order.send(body=body, headers=JSON)
    assert (answer.status, answer.slug, answer.outcome) == (400, "body-invalid", "rejected") and not order.posts


def multipart(boundary, value):
    return (f'--{boundary}\r\nContent-Disposition: form-data; name="a"\r\n\r\n{value}\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="f"; filename="x.bin"\r\n'
            f'Content-Type: application/octet-stream\r\n\r\nbytes\r\n--{boundary}--\r\n')


def test_the_boundary_of_a_multipart_body_does_not_count(house):
    order = house.order("plain", Step())

    def send(boundary, value):
        return order.send(body=multipart(boundary, value),
                          headers={**T, "Content-Type": f"multipart/form-data; boundary={boundary}"})

    assert send("one", "1").status == 201
    assert send("another-boundary", "1").replayed
    assert send("one", "2").slug == "call-id-reused"
    assert len(order.posts) == 1


@pytest.mark.parametrize("headers", [{"Content-Type": "text/plain"}, {"Content-Type": None},
                                     {"Content-Type": "application/x-www-form-urlencoded"}])
def test_other_bodies_are_compared_by_their_bytes(house, headers):
    order = house.order("plain", Step())
    headers = {**T, **headers}
    assert order.send(body='{"a":1, "b":2}', headers=headers).status == 201
    assert order.send(body='{"a":1, "b":2}', headers=headers).replayed
    assert order.send(body='{"a":1,"b":2}', headers=headers).slug == "call-id-reused"


def test_encoded_json_is_compared_by_its_bytes(house):
    order = house.order("plain", Step())
    headers = {**JSON, "Content-Encoding": "gzip"}
    one, two = gzip.compress(b'{"a":1}', mtime=0), gzip.compress(b'{ "a":1}', mtime=0)
    assert order.send(body=one, headers=headers).status == 201
    assert order.posts[0].body == one
    assert order.send(body=one, headers=headers).replayed
    assert order.send(body=two, headers=headers).slug == "call-id-reused"


@pytest.mark.parametrize("change", [{"method": "PATCH"}, {"path": "{}x"}, {"path": "{}?q=1"}, {"path": "{}/x"}])
def test_method_path_and_query_count(house, change):
    order = house.order("puts", Step())
    assert order.send(headers=T).status == 201
    if "path" in change:
        change = {"path": change["path"].format(order.path)}
    assert order.send(headers=T, **change).slug == "call-id-reused"
    assert order.send(unique("c"), headers=T, **change).slug == "key-reused"
    assert len(order.posts) == 1


def test_named_fields_may_be_all_that_counts(house):
    order = house.order("fields", Step())
    assert order.send(body='{"amount":5,"currency":"EUR","at":1}', headers=T).status == 201
    assert order.send(body='{"amount":5.0,"currency":"EUR","at":2,"more":{}}', headers=T).replayed
    assert order.send(body='{"amount":6,"currency":"EUR","at":1}', headers=T).slug == "call-id-reused"
    assert order.send(body='{"amount":5,"at":1}', headers=T).slug == "call-id-reused"


def test_ignored_fields_may_differ(house):
    order = house.order("ignoring", Step())
    assert order.send(body='{"amount":5,"sent_at":1,"meta":{"nonce":"a","x":1}}', headers=T).status == 201
    assert order.send(body='{"amount":5,"sent_at":2,"meta":{"x":1,"nonce":"b"}}', headers=T).replayed
    assert order.send(body='{"amount":5,"meta":{"x":1}}', headers=T).replayed
    assert order.send(body='{"amount":5,"sent_at":1,"meta":{"nonce":"a","x":2}}', headers=T).slug == "call-id-reused"


def test_put_and_delete_are_guarded_by_choice(house):
    for method, body in (("PUT", None), ("DELETE", b"")):
        order = house.order("puts", Step(200))
        assert not order.send(method=method, body=body, headers=T).replayed
        assert order.send(method=method, body=body, headers=T).replayed
        assert len(order.posts) == 1


# ---- what the upstream sees

def test_every_header_goes_up_as_it_came(house):
    order = house.order("plain", Step())
    own = [("X-Tenant", "t1"), ("X-Odd-CASE", "v"), ("x-twice", "1"), ("x-twice", "2"), ("Authorization", "Bearer abc"),
           ("Cookie", "a=b; c=d"), ("Accept", "*/*"), ("User-Agent", "tests/1"), ("X-Empty", ""),
           ("Prefer", "return=minimal"), ("X-Latin", "caf\xe9")]
    head = [("X-Call-Id", order.call_id), ("Idempotency-Key", order.key), ("Content-Type", "application/json")]
    raw = request("POST", order.path + "?a=%2F&b", head + own, order.body, host="shop.example.test:8443")
    assert house.gateway.send(raw).status == 201
    seen = order.posts[0]
    assert (seen.method, seen.target, seen.body) == ("POST", order.path + "?a=%2F&b", order.body.encode())
    assert seen.all("Host") == ["shop.example.test:8443"]
    got = [pair for pair in seen.headers if pair[0].lower() in {name.lower() for name, _ in own}]
    assert got == own
    assert seen.all("Forwarded") and "127.0.0.1" in seen.get("Forwarded")
    assert seen.all("X-Call-Id") == [order.call_id] and seen.all("Idempotency-Key") == [order.key]
    assert seen.all("Content-Length") == [str(len(order.body))] and not seen.all("Transfer-Encoding")


def test_hop_by_hop_headers_stay_here(house):
    order = house.order("plain", Step())
    assert order.send(headers={**T, "Connection": "keep-alive, X-Mine", "X-Mine": "1", "Keep-Alive": "timeout=5",
                               "TE": "trailers", "Proxy-Authorization": "x", "X-Yours": "1"}).status == 201
    seen = order.posts[0]
    for name in ("X-Mine", "Keep-Alive", "TE", "Proxy-Authorization", "Upgrade"):
        assert not seen.all(name), name
    assert seen.get("X-Yours") == "1"


def test_a_forwarded_header_is_added_to(house):
    order = house.order("plain", Step())
    order.send(headers={**T, "Forwarded": "for=192.0.2.7"})
    assert order.posts[0].get("Forwarded").startswith("for=192.0.2.7,") and "127.0.0.1" in order.posts[0].get("Forwarded")


def test_attempts_are_numbered_and_carry_the_same_call(house):
    order = house.order("plain", Step(then="rst"), Step(421), Step(201))
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = order.send(headers={**T, "traceparent": trace, "X-Call-Attempt": "77", "X-Call-Fence": "99",
                                 "tracestate": "a=b"})
    assert answer.status == 201
    assert [p.all("X-Call-Attempt") for p in order.posts] == [["1"], ["2"], ["3"]]
    assert {p.get("X-Call-Id") for p in order.posts} == {order.call_id}
    assert {p.get("Idempotency-Key") for p in order.posts} == {order.key}
    assert {p.body for p in order.posts} == {order.body.encode()}
    fences = [int(p.get("X-Call-Fence")) for p in order.posts]
    assert all(len(p.all("X-Call-Fence")) == 1 for p in order.posts) and 99 not in fences
    assert fences == sorted(fences) and fences[0] >= 1
    traces = [p.get("traceparent").split("-") for p in order.posts]
    assert {t[1] for t in traces} == {trace.split("-")[1]} and {t[3] for t in traces} == {"01"}
    parents = [t[2] for t in traces]
    assert len(set(parents)) == 3 and trace.split("-")[2] not in parents
    assert order.posts[0].get("tracestate") == "a=b"
    assert order.receipt(headers=T).json()["trace_id"] == trace.split("-")[1]


def test_the_budget_goes_up_lowered(house):
    order = house.order("plain", Step(then="rst", delay=0.1), Step(201))
    assert order.send(headers={**T, "X-Call-Budget-Ms": "3000"}).status == 201
    budgets = [int(p.get("X-Call-Budget-Ms")) for p in order.posts]
    assert 0 < budgets[1] <= budgets[0] - 100 <= 2900


def test_the_business_reference_is_kept(house):
    order = house.order("plain", Step())
    order.send(headers={**T, "X-Business-Ref": "order 42"})
    assert order.receipt(headers=T).json()["business_ref"] == "order 42"
    assert order.posts[0].get("X-Business-Ref") == "order 42"


@pytest.mark.parametrize("headers", [{"Prefer": "respond-async"}, {"Prefer": "return=minimal, respond-async, wait=10"},
                                     {"X-Call-Not-Before": "2030-01-01T00:00:00Z"},
                                     {"X-Call-Notify": "https://example.test/hook"}])
def test_what_is_not_built_yet_is_refused_and_never_run_at_once(house, headers):
    order = house.order("plain", Step())
    answer = order.send(headers={**T, **headers})
    assert answer.status == 400 and answer.outcome == "rejected" and answer.slug
    assert not order.posts and order.receipt(headers=T).status == 404


def test_an_upstreams_headers_of_our_names_are_replaced(house):
    order = house.order("plain", Step(201, headers={
        "Content-Type": "application/json", "Idempotent-Replayed": "true", "X-Original-Call-Id": "zz",
        "X-Call-Id-Source": "gateway", "Link": "</items>; rel=items", "X-Suspected-Duplicate": "zz"}))
    answer = order.send(headers=T)
    guarded(answer, order.call_id)
    assert not answer.all("Idempotent-Replayed") and not answer.all("X-Original-Call-Id")
    assert not answer.all("X-Suspected-Duplicate")
    assert sorted(answer.all("Link")) == [f'</.samekey/receipts/{order.call_id}>; rel="receipt"', "</items>; rel=items"]


def test_every_answer_of_ours_has_the_lines_too(house):
    order = house.order("plain", Step(400))
    guarded(order.send(headers=T), order.call_id, outcome="rejected")
    other = house.order("plain", Step())
    refused = other.send(order.call_id, headers=T)
    assert refused.slug == "call-id-reused"
    guarded(refused, order.call_id, outcome="rejected")
