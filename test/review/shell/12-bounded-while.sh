#!/bin/bash
# SPDX-License-Identifier: MIT
n=0
while [ "$n" -lt 3 ]; do
    curl -m 5 -H "Idempotency-Key: order-$NO" -d @order.json https://shop.example/orders && break
    n=$((n + 1))
    sleep $((RANDOM % 3 + 1))
done
