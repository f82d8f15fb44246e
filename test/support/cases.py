# SPDX-License-Identifier: MIT
"""A gateway as the cases want it: in front of stub_upstream.py, tenant by X-Tenant where the case has tenants."""

import json

from .gateway import Gateway
from .stub import Stub, case

RECEIPT = "http GET /receipts/{call_id}"


class Stage:
    """Stub and gateway for one case. `spec`: a file of the case's folder, or a document written into `folder`."""

    def __init__(self, name, folder, spec="upstream.json", routes=None, start=True, policy=None, **top):
        self.case = case(name)
        if isinstance(spec, str):
            file = self.case / spec
        else:
            file = folder / "upstream.json"
            file.write_text(json.dumps(spec), encoding="utf-8")
        self.stub = Stub(file)
        routes = routes or {"orders": {"path": ["/orders", "/orders/{id}/cancel"]}}
        self.gateway = Gateway(folder, {n: {"upstream": [self.stub.url], "receipt": RECEIPT, "key_missing": "refuse",
                                            **(policy or {}), **r} for n, r in routes.items()}, start=start, **top)

    def file(self, name):
        return (self.case / name).read_bytes()

    def json(self, name):
        return json.loads(self.file(name))

    def send(self, name, **more):
        return self.gateway.send(self.file(name), **more)

    def close(self):
        try:
            if self.gateway.process:
                self.gateway.stop()
        finally:
            self.stub.close()
