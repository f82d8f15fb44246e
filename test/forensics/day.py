#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes a seeded day of calls as JSON lines to standard output: `day.py CALLS SEED [DUPLICATES]`.

Everything in it is lawful but what DUPLICATES asks for: 2 % of the calls time out, are asked about and are sent again after
NOT_RECEIVED with growing, jittered waits; some are refused by 429 and come again; a batch job writes many keys under one
callId; two cron jobs tick; keys are used again after hours; lines are shipped twice now and then. Duplicates are, in turn:
a retry without a question, a new callId after an unknown ending, one callId run twice."""
import random
import sys
import time

DAY_S = 86400
START = 1772323200  # 2026-03-01T00:00:00Z


def day(out, calls, seed, duplicates=0):
    chance = random.Random(seed)
    planted = set(chance.sample(range(calls), duplicates))
    kind = 0
    write = out.write
    clock = {"second": -1, "text": ""}

    def line(t, source, event, call, key, more=""):
        second = int(t)
        if second != clock["second"]:
            clock["second"], clock["text"] = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(START + second))
        text = (f'{{"ts":"{clock["text"]}.{int((t - second) * 1000):03}Z","src":"{source}","event":"{event}","callId":"{call}",'
                f'"bizKey":"{key}"{more},"route":"orders","pod":"orders-7f9c-{call[-1]}"}}\n')
        write(text)
        return text

    for i in range(calls):
        t = i * DAY_S / calls
        call, key = f"ord-{1772323200000 + int(t * 1000)}-{chance.getrandbits(48):012x}-node{i % 20:02}", f"order:{i}"
        line(t, "gw", "call.received", call, key)
        line(t + .002, "gw", "attempt.sent", call, key, ',"attempt":1')
        n, wait = 1, t + .002
        if i in planted:
            kind += 1
            line(t + .5, "svc", "effect.committed", call, key, f',"execId":"x-{i}a"')
            if kind % 3 == 0:
                line(t + 3.002, "gw", "attempt.timeout", call, key, ',"attempt":1')
                line(t + 3.9, "gw", "attempt.sent", call, key, ',"attempt":2')
                line(t + 4, "svc", "effect.committed", call, key, f',"execId":"x-{i}b"')
                line(t + 4.1, "gw", "attempt.answered", call, key, ',"attempt":2,"status":201')
            elif kind % 3 == 1:
                line(t + 3.002, "gw", "attempt.timeout", call, key, ',"attempt":1')
                line(t + 3.003, "gw", "call.done", call, key, ',"state":"UNKNOWN"')
                call = call[:-1] + "x"
                line(t + 5, "gw", "attempt.sent", call, key, ',"attempt":1')
                line(t + 5.1, "svc", "effect.committed", call, key, f',"execId":"x-{i}b"')
                line(t + 5.2, "gw", "attempt.answered", call, key, ',"attempt":1,"status":201')
            else:
                line(t + .6, "svc", "effect.committed", call, key, f',"execId":"x-{i}b"')
                line(t + .7, "gw", "attempt.answered", call, key, ',"attempt":1,"status":201')
            continue
        draw = chance.random()
        retries = 0 if draw >= .02 else 1 if draw >= .004 else 2
        for _ in range(retries):
            if draw < .015:
                line(wait + 3, "gw", "attempt.timeout", call, key, f',"attempt":{n}')
                line(wait + 3.01, "gw", "receipt.query", call, key)
                line(wait + 3.02, "gw", "receipt.answer", call, key, ',"state":"NONE"')
                wait += 3.02
            else:
                line(wait + .02, "gw", "attempt.answered", call, key, f',"attempt":{n},"status":429')
                wait += .02
            wait += min(4, .5 * 2 ** (n - 1)) * chance.uniform(.5, 1)
            n += 1
            line(wait, "gw", "attempt.sent", call, key, f',"attempt":{n}')
        line(wait + .04, "svc", "effect.committed", call, key, f',"execId":"x-{i}"')
        again = line(wait + .055, "gw", "attempt.answered", call, key, f',"attempt":{n},"status":201')
        if i % 5000 == 17:
            write(again)
        line(wait + .056, "gw", "call.done", call, key, ',"state":"SUCCESS"')
        if i % 977 == 0:
            line(wait + 60, "gw", "replay.served", call, key, ',"status":201')
    for hour in range(24):
        for item in range(20):
            line(hour * 3600 + item / 10, "svc", "effect.committed", f"batch-{hour}", f"invoice:{hour}:{item}",
                 f',"execId":"b-{hour}-{item}"')
        for name, minutes in (("cron:cleanup", range(0, 60, 5)), ("cron:report", (0,))):
            for minute in minutes:
                t, call = hour * 3600 + minute * 60 + chance.uniform(0, .5), f"{name}-{hour}-{minute}"
                line(t, "gw", "attempt.sent", call, name, ',"attempt":1')
                line(t + 2, "svc", "effect.committed", call, name, f',"execId":"e-{name}-{hour}-{minute}"')
                line(t + 2.1, "gw", "attempt.answered", call, name, ',"attempt":1,"status":200')


if __name__ == "__main__":
    day(sys.stdout, int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
