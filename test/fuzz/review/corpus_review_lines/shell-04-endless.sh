#!/bin/sh
# SPDX-License-Identifier: MIT
until curl -fsS -m 5 -d @order.json https://shop.example/orders; do
    sleep "$(( RANDOM % 5 + 1 ))"
done
