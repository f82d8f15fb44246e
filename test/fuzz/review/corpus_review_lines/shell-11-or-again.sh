#!/bin/bash
# SPDX-License-Identifier: MIT
id=$(curl -m 5 -d @order.json https://shop.example/orders || curl -m 5 -d @order.json https://shop.example/orders)
cat <<EOF
curl --retry 9 -d @order.json https://shop.example/in-a-document
EOF
# curl --retry 9 -d @order.json https://shop.example/in-a-comment
echo 'curl --retry 9 -d x https://shop.example/in-a-string'
