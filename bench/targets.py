# SPDX-License-Identifier: MIT
"""What samekey's speed is held to: each row of the table with its "must" and its "aim", the runs it needs, and how its
figure comes out of them. Nothing is measured here; bench/run measures and prints.

A run of the load generator is named (mode, connections, program). A figure has one value for each repeat, made of
runs of that repeat alone; the table shows the median and the range."""

import statistics

DURABLE_PEERS = ("lua-redis-always", "node-idempotency")
MIB = 1024 * 1024


class Target:
    """One figure of a row. `must` and `aim` are numbers, or functions of the results, or None in a row that is only
    told."""

    def __init__(self, row, what, at, must, aim, values, needs, unit="×", more=True):
        self.row, self.what, self.at, self.must, self.aim = row, what, at, must, aim
        self.values, self.needs, self.unit, self.more = values, needs, unit, more

    def judged(self, results):
        """A line of the table: the median, bounds, and whether they are kept. Where no run counts, `measured` is None
        and nothing is kept."""
        values = list(self.values(results))
        if not values:
            return {"row": self.row, "what": self.what, "at": self.at, "measured": None, "met": "no"}
        value = statistics.median(values)
        must, aim = (bound(results) if callable(bound) else bound for bound in (self.must, self.aim))
        kept = (lambda bound: value >= bound) if self.more else (lambda bound: value <= bound)
        met = "told" if must is None else "aim" if kept(aim) else "must" if kept(must) else "no"
        # An exact target (nothing may be repeated, nothing may differ) has no ratio.
        of_must = None if not must or not value else value / must if self.more else must / value
        return {"row": self.row, "what": self.what, "at": self.at, "unit": self.unit, "must": must, "aim": aim,
                "more": self.more, "measured": value, "least": min(values), "most": max(values), "of_must": of_must,
                "met": met}


def speeds(value):
    """A figure from the load generator's runs of one repeat; value(get) where get(mode, connections, program) is a
    result. A repeat that lacks a run, or had one that does not count, gives none."""
    def values(results):
        for repeat in results.get("speed", []):
            def get(mode, connections, program, repeat=repeat):
                result = repeat.get(f"{mode}-{connections}-{program}")
                if result is None or "wrong" in result:
                    raise KeyError
                return result
            try:
                yield value(get)
            except KeyError:
                continue
    return values


def per_s(get, *run):
    return get(*run)["per_s"]


def ratio(ours, theirs):
    """Ours over the fastest of theirs, all in the same repeat."""
    return speeds(lambda get: per_s(get, *ours) / max(per_s(get, *run) for run in theirs)), {ours, *theirs}


def group(name, value):
    """A figure from the repeats of a measurement that is not a plain run of the load generator."""
    return (lambda results: [value(repeat) for repeat in results.get(name, []) if "wrong" not in repeat]), {name}


def alone_bound(times, plus_us):
    """`times` one write with fdatasync, as measured in this run, plus a little."""
    return lambda results: times * results["fdatasync_us"] + plus_us


def targets():
    for connections, must, aim in ((256, 0.40, 0.70), (64, 0.32, 0.48), (16, 0.22, 0.30)):
        yield Target("nginx", "unique calls × nginx plain proxy", f"{connections} connections", must, aim,
                     *ratio(("unique", connections, "gateway"), [("unique", connections, "nginx")]))
    for connections, must, aim in ((256, 2.0, 3.0), (64, 1.6, 2.2), (16, 1.4, 2.0)):
        yield Target("peers", "unique calls × the fastest durable peer", f"{connections} connections", must, aim,
                     *ratio(("unique", connections, "gateway"), [("unique", connections, p) for p in DURABLE_PEERS]))
    yield Target("restate", "unique calls × Restate, one node", "64 connections", 15, 25,
                 *ratio(("unique", 64, "gateway"), [("unique", 64, "restate")]))
    yield Target("postgres", "PostgreSQL store × the hand-written middleware", "256 connections", 4, 7,
                 *ratio(("unique", 256, "gateway-postgres"), [("unique", 256, "pg-middleware")]))
    one = ("unique", 1, "gateway")
    yield Target("alone", "median of a unique call, against fdatasync", "1 connection", alone_bound(3, 150),
                 alone_bound(2.2, 100), speeds(lambda get: get(*one)["latency_us"]["p50"]), {one}, "µs", more=False)
    for connections in (64, 256):
        run = ("unique", connections, "gateway")
        yield Target("tail", "p99 of unique calls ÷ their median", f"{connections} connections", 4, 2.5, speeds(
            lambda get, run=run: get(*run)["latency_us"]["p99"] / get(*run)["latency_us"]["p50"]), {run}, more=False)
    yield Target("recent", "replays × nginx plain proxy", "64 connections", 1.5, 2.4,
                 *ratio(("replay", 64, "gateway"), [("unique", 64, "nginx")]))
    yield Target("recent", "receipt queries, recent, × nginx plain proxy", "64 connections", 1.5, 2.4,
                 *ratio(("receipt", 64, "gateway"), [("get", 64, "nginx")]))
    yield Target("disk", "receipt queries from disk × nginx plain proxy", "64 connections, full store", 0.75, 1.2,
                 *group("growth", lambda r: r["full"]["receipt"]["per_s"] / r["nginx"]["per_s"]))
    yield Target("disk", "the same, a tenth of its pages not in the system's page cache", "64 connections, full store", None, None,
                 *group("growth", lambda r: r["cold"]["per_s"] / r["nginx"]["per_s"]))
    yield Target("get", "GET passed through × nginx plain proxy", "64 connections", 0.8, 1.1,
                 *ratio(("get", 64, "gateway"), [("get", 64, "nginx")]))
    for connections, must, aim in ((64, 60, 45), (256, 50, 36)):
        run = ("unique", connections, "gateway")
        yield Target("cpu", "own CPU of a unique call", f"{connections} connections", must, aim, speeds(
            lambda get, run=run: get(*run)["program_cpu_us_per_request"]), {run}, "µs", more=False)
    for at, must, aim, name, unit, scale in (
            ("idle", 15, 8, "idle", "MiB", MIB), ("unique calls, 256 connections, cache apart", 40, 20, "busy", "MiB", MIB),
            ("one of 10,000 idle connections", 16, 8, "connection", "KiB", 1024)):
        yield Target("memory", "resident memory", at, must, aim,
                     *group("memory", lambda r, name=name, scale=scale: r[name] / scale), unit, more=False)
    yield Target("bytes", "disk of a receipt × its stored bytes", "full store", 1.4, 1.15,
                 *group("bytes", lambda r: r["disk"] / r["stored"]), more=False)
    for what, name in (("time of a lookup", "receipt"), ("start-up", "start")):
        yield Target("growth", f"{what}, full store × small store", "64 connections" if name == "receipt" else "to the first answer", 1.3, 1.1,
                     *group("growth", lambda r, name=name: grown(r, name)), more=False)
    yield Target("growth", "time of a claim and ending, full store × small store", "256 connections", 1.6, 1.2,
                 *group("growth", lambda r: grown(r, "unique")), more=False)
    for connections in (64, 256):
        yield Target("features", "all features on × all off", f"{connections} connections", 0.88, 0.94, *group(
            "features", lambda r, c=connections: r[f"on-{c}"]["per_s"] / r[f"off-{c}"]["per_s"]))
    yield Target("same", "executions of one call sent 64 times at once", "64 connections", 1, 1,
                 *group("same", lambda r: r["executions_most"]), "", more=False)
    yield Target("same", "equal answers to it", "of 64", 64, 64, *group("same", lambda r: r["equal_least"]), "")
    # Where the disk, SQLite and a proxy alone stand, and what of it is left: told, held to nothing.
    for what, ours, theirs in (("the floor's unique calls × nginx plain proxy", "floor", "nginx"),
                               ("unique calls × the floor", "gateway", "floor")):
        for connections in (256, 64, 16):
            yield Target("floor", what, f"{connections} connections", None, None,
                         *ratio(("unique", connections, ours), [("unique", connections, theirs)]))


def grown(repeat, name):
    if name == "start":
        return repeat["full"]["start_s"] / repeat["small"]["start_s"]
    return repeat["small"][name]["per_s"] / repeat["full"][name]["per_s"]


ROWS = list(dict.fromkeys(target.row for target in targets()))


def number(value, unit):
    text = f"{value:,.0f}" if value >= 100 or float(value).is_integer() and unit == "" else f"{value:.2f}"
    return f"{text} {unit}".strip() if unit not in ("×", "") else text


def table(lines):
    """The table in Markdown."""
    yield "| work | at | must | aim | measured (range) | of must | met |"
    yield "|---|---|---|---|---|---|---|"
    for line in lines:
        if line["measured"] is None:
            yield f"| {line['what']} | {line['at']} | – | – | no run counts | – | **no** |"
            continue
        sign = "≥" if line["more"] else "≤"
        spread = f"{number(line['least'], '')}–{number(line['most'], '')}"
        of_must = f"{line['of_must']:.2f}" if line["of_must"] else "–"
        met = {"aim": "must and aim", "must": "must", "no": "**no**", "told": "–"}[line["met"]]
        must, aim = ("–" if line[name] is None else f"{sign} {number(line[name], line['unit'])}" for name in ("must", "aim"))
        yield (f"| {line['what']} | {line['at']} | {must} | {aim} | {number(line['measured'], line['unit'])} ({spread}) |"
               f" {of_must} | {met} |")
