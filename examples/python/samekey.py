# SPDX-License-Identifier: MIT
"""libsamekey from Python by ctypes: a sketch, enough to make calls and to read their results.

    import samekey
    with samekey.Caller(journal="/var/lib/report/journal.db") as caller:
        result = caller.call("http://127.0.0.1:8080/orders", key="order:42:create", body=b'{"amount":1200}')
        if result["state"] == "UNKNOWN":
            ...  # never a new key; the same call again, later

The structures follow include/samekey/samekey.h member by member; `size` tells the library which members are known here,
so an older copy of this file goes on working."""
import ctypes
import ctypes.util
import json
import os

P, Z, I, L, D, U = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64, ctypes.c_double, ctypes.c_uint)
STATES = {2: "PROCESSING", 3: "SUCCESS", 4: "FAILED", 5: "UNKNOWN"}
FLAGS = {"callee_idempotent": 1, "server_error_failed": 2, "accepted_success": 4, "redirect_303_success": 8,
         "no_journal": 16, "no_journal_body": 32, "receipts_run_once": 64, "expect_continue": 128, "http2": 256,
         "resend_needs_key": 512, "quick_exit": 1024}


class Error(ctypes.Structure):
    _fields_ = [("status", I), ("text", ctypes.c_char * 240)]


class Config(ctypes.Structure):
    _fields_ = [("size", Z), ("journal", P), ("prefix", P), ("node", P), ("retry_budget", I), ("retry_budget_floor", I),
                ("retries_in_flight", I), ("calls_in_flight", I), ("breaker_failures", I), ("breaker_calls", I),
                ("breaker_window_ms", L), ("breaker_open_ms", L), ("breaker_probes", I),
                ("error", ctypes.POINTER(Error))]


class Header(ctypes.Structure):
    _fields_ = [("name", P), ("value", P)]


class Progress(ctypes.Structure):
    _fields_ = [("size", Z), ("what", I), ("elapsed_ms", L), ("call_id", P), ("attempt", I), ("outcome", I),
                ("answer", I), ("wait_ms", L), ("text", P)]


PROGRESS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Progress))
CANCELLED = ctypes.CFUNCTYPE(I, ctypes.c_void_p)


class Options(ctypes.Structure):
    _fields_ = [("size", Z), ("method", P), ("url", P), ("headers", ctypes.POINTER(Header)), ("header_count", Z),
                ("body", P), ("body_len", Z), ("key", P), ("call_id", P), ("prefix", P), ("business_ref", P),
                ("traceparent", P), ("retries", I), ("attempt_timeout_ms", L), ("deadline_ms", L),
                ("backoff_base_ms", L), ("backoff_cap_ms", L), ("jitter_low", D), ("jitter_high", D),
                ("retry_after_max_ms", L), ("upstream_key_life_ms", L), ("receipt", P),
                ("receipt_headers", ctypes.POINTER(Header)), ("receipt_header_count", Z), ("receipt_map", P),
                ("receipt_timeout_ms", L), ("receipt_queries", I), ("resend_after_ms", L), ("result_bytes_max", L),
                ("ca_file", P), ("flags", U), ("progress", PROGRESS), ("cancelled", CANCELLED),
                ("context", ctypes.c_void_p), ("error", ctypes.POINTER(Error))]


class Refused(Exception):
    """Nothing was sent; `status` is an enum samekey_status and the text says why."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def load(path=None):
    """The library: SAMEKEY_LIB, or the installed one."""
    lib = ctypes.CDLL(path or os.environ.get("SAMEKEY_LIB") or ctypes.util.find_library("samekey") or "libsamekey.so.0")
    lib.samekey_result_json.restype = P
    lib.samekey_version.restype = P
    for name in ("samekey_result_json", "samekey_result_free", "samekey_close"):
        getattr(lib, name).argtypes = [ctypes.c_void_p]
    lib.samekey_result_free.restype = lib.samekey_close.restype = None
    return lib


class Caller:
    """A handle. Any number of threads may use it."""

    def __init__(self, journal=None, lib=None, **config):
        self.lib = lib or load()
        self.error, c = Error(), Config()
        self.lib.samekey_config_init_sized(ctypes.byref(c), Z(ctypes.sizeof(c)))
        c.journal = os.fsencode(journal) if journal is not None else None
        for name, value in config.items():
            setattr(c, name, value.encode() if isinstance(value, str) else value)
        c.error = ctypes.pointer(self.error)
        self.handle = ctypes.c_void_p()
        self._check(self.lib.samekey_open(ctypes.byref(self.handle), ctypes.byref(c)), self.error)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.lib.samekey_close(self.handle)
        self.handle = ctypes.c_void_p()

    @staticmethod
    def _check(status, error):
        if status:
            raise Refused(status, error.text.decode())

    def _result(self, result):
        try:
            return json.loads(self.lib.samekey_result_json(result))
        finally:
            self.lib.samekey_result_free(result)

    def make_id(self, prefix=None):
        out = ctypes.create_string_buffer(129)
        self._check(self.lib.samekey_make_id(self.handle, prefix and prefix.encode(), out), Error())
        return out.value.decode()

    def call(self, url, method="POST", headers=(), body=b"", on_progress=None, cancelled=None, **options):
        """One call to its end. Options are the members of struct samekey_options; its flags are given as
        name=True. Returns the document of `samekey call --format json`."""
        error, o, result = Error(), Options(), ctypes.c_void_p()
        self.lib.samekey_options_init_sized(ctypes.byref(o), Z(ctypes.sizeof(o)))
        o.method, o.url, o.body, o.body_len = method.encode(), url.encode(), body, len(body)
        pairs = (Header * len(headers))(*[Header(n.encode(), v.encode("latin-1")) for n, v in headers])
        o.headers, o.header_count = pairs, len(headers)
        for name, value in options.items():
            if name in FLAGS:
                o.flags |= FLAGS[name] if value else 0
            else:
                setattr(o, name, value.encode() if isinstance(value, str) else value)
        if on_progress:
            o.progress = PROGRESS(lambda _, p: on_progress(p.contents))
        if cancelled:
            o.cancelled = CANCELLED(lambda _: int(bool(cancelled())))
        o.error = ctypes.pointer(error)
        self._check(self.lib.samekey_call(self.handle, ctypes.byref(o), ctypes.byref(result)), error)
        return self._result(result)

    def resume(self, call_id):
        result = ctypes.c_void_p()
        self._check(self.lib.samekey_resume(self.handle, call_id.encode(), None, ctypes.byref(result)), Error())
        return self._result(result)
