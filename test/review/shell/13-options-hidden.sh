#!/bin/bash
# SPDX-License-Identifier: MIT
curl --retry 3 -d a=1 "${OPTIONS[@]}" https://shop.example/orders
