#!/bin/sh
# SPDX-License-Identifier: MIT
timeout 10 curl --retry 3 -m 5 -H "Idempotency-Key: $KEY" -d @order.json https://shop.example/orders
timeout 60 curl --retry 3 -m 5 -H "Idempotency-Key: $KEY" -d @order.json https://shop.example/orders
