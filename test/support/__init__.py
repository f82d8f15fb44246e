# SPDX-License-Identifier: MIT
"""What the tests that run the built program share: the program itself, raw bytes to it, and a service behind it."""
