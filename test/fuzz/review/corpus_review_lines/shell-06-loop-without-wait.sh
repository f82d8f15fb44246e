#!/bin/bash
# SPDX-License-Identifier: MIT
for try in {1..10}; do
    if curl -m 5 -H "Idempotency-Key: $KEY" -d @order.json https://shop.example/orders; then
        break
    fi
done
