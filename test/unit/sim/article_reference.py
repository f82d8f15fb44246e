#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The article's experiment as a plain loop over CPython's own random module, written from CONTRACT section 11.

One argument: a JSON object of parameters. Prints one line for each strategy:
strategy,confirmed,duplicates,effective_unconfirmed,attempts,mean_wait_s
"""
import json
import random
import sys


def run(calls, fail, timeout, attempts, fixed_delay, base, cap, low, high, seed):
    random.seed(seed)
    rows = []
    for strategy in ("none", "fixed", "exponential_jitter"):
        confirmed = duplicates = effective_unconfirmed = tried = 0
        waited = 0.0
        for _ in range(calls):
            effects = 0
            clear = False
            delay = base
            limit = 1 if strategy == "none" else attempts
            for attempt in range(limit):
                r = random.random()
                tried += 1
                if r < timeout:
                    effects += 1
                elif r < timeout + fail:
                    pass
                else:
                    effects += 1
                    clear = True
                    break
                if attempt == limit - 1:
                    break
                if strategy == "fixed":
                    waited += fixed_delay
                else:
                    waited += min(delay, cap) * random.uniform(low, high)
                    delay *= 2
            if clear:
                confirmed += 1
            if effects > 1:
                duplicates += effects - 1
            if effects and not clear:
                effective_unconfirmed += 1
        rows.append((strategy, confirmed, duplicates, effective_unconfirmed, tried, waited / calls))
    return rows


if __name__ == "__main__":
    for row in run(**json.loads(sys.argv[1])):
        print(",".join(map(repr, row)).replace("'", ""))
