#!/bin/sh
# SPDX-License-Identifier: MIT
wget --post-file=order.json https://shop.example/orders
wget --tries=0 --timeout=5 --header="Idempotency-Key: order-$NO" --post-data=a=1 https://shop.example/orders
wget --tries=1 --post-data=a=1 https://shop.example/orders
