# SPDX-License-Identifier: MIT
"""A gateway in front of a scripted service, shared by the tests of a module; each test has an order of its own in it."""

import json
import re

from .gateway import Gateway, post
from .poll import unique
from .upstream import Step, Upstream
from .wire import Wire

OWN = object()  # the order's own callId or key


class Order:
    """A path nobody else uses on one route of a house, with a callId and a key for it."""

    def __init__(self, house, route, *steps):
        self.house, self.gateway, self.upstream = house, house.gateway, house.upstream
        self.name = unique("o")
        self.path, self.call_id, self.key = f"/{route}/{self.name}", unique("c"), unique("k")
        self.body = json.dumps({"order": self.name, "amount": 10})
        if steps:
            self.script(*steps)

    def script(self, *steps):
        self.upstream.script(self.path, *steps)
        return self

    def receipts(self, *steps):
        self.upstream.answer_receipt(self.call_id, *steps)
        return self

    def bytes(self, call_id=OWN, key=OWN, body=None, **more):
        return post(more.pop("path", self.path), self.call_id if call_id is OWN else call_id,
                    self.key if key is OWN else key, self.body if body is None else body, **more)

    def send(self, *arguments, timeout=15, **more):
        """One request for this order; callId None or key None leave theirs out."""
        return self.gateway.send(self.bytes(*arguments, **more), more.get("method", "POST"), timeout)

    def open(self, *arguments, **more):
        """As send, without reading the answer: the connection."""
        wire = Wire(self.gateway.port)
        wire.send(self.bytes(*arguments, **more))
        return wire

    def receipt(self, query="", headers=None):
        return self.gateway.receipt(self.call_id, query, headers)

    @property
    def state(self):
        return self.receipt().json()["state"]

    @property
    def posts(self):
        return self.upstream.posts(self.path)

    @property
    def effects(self):
        return self.upstream.effects(self.path)

    @property
    def queries(self):
        return self.upstream.queries(self.call_id)

    @property
    def story(self):
        """P for each POST and ? for the receipt queries (one or several) after it, in their order."""
        return re.sub(r"\?+", "?", self.upstream.story(self.path, self.call_id))


class House:
    def __init__(self, folder, routes, upstream=None, **top):
        self.upstream = upstream or Upstream()
        filled = {}
        for name, settings in routes.items():
            settings = dict(settings)
            settings.setdefault("upstream", [self.upstream.url])
            filled[name] = settings
        self.gateway = Gateway(folder, filled, **top)

    def order(self, route, *steps):
        return Order(self, route, *steps)

    def close(self):
        try:
            code = self.gateway.stop()
        finally:
            self.upstream.close()
        return code


__all__ = ["House", "Order", "Step", "Upstream"]
