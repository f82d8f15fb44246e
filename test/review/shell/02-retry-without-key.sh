#!/bin/bash
# SPDX-License-Identifier: MIT
curl --retry 3 -m 5 -d @order.json https://shop.example/orders
curl -X POST --retry 10 \
     -H 'Content-Type: application/json' \
     https://shop.example/orders
curl -d @order.json https://shop.example/orders
curl -G -d q=1 --retry 3 https://shop.example/search
