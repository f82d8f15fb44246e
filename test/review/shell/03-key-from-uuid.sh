#!/bin/bash
# SPDX-License-Identifier: MIT
curl --retry 3 -m 5 \
     -H "Idempotency-Key: $(uuidgen)" \
     -d @order.json https://shop.example/orders
key="order-$(date +%s)"
curl --retry 3 -m 5 -H "Idempotency-Key: $key" -d @order.json https://shop.example/orders
