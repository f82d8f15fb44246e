#!/bin/sh
# SPDX-License-Identifier: MIT
curl -m 5 -d @order.json https://shop.example/orders || true
curl -m 5 https://shop.example/health || true
curl -m 5 -d @order.json https://shop.example/orders || exit 1
