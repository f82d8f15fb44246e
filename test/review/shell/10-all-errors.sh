#!/bin/sh
# SPDX-License-Identifier: MIT
curl -m 5 --retry 2 --retry-delay 1 -H "Idempotency-Key: $KEY" \
     --retry-all-errors -d @order.json https://shop.example/orders
