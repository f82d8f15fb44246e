# SPDX-License-Identifier: MIT
# A door, not a build system: CMake and Ninja build, and each target here is one script that says what it does.
.PHONY: help build run test soak bench format check-format tidy cppcheck arrows pure asan tsan fuzz install clean
.DEFAULT_GOAL := help
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 16

build: ## build build/samekey
	@scripts/build

run: ## install what is needed, build, start the gateway and show the point of it (UPSTREAM=http://... for yours)
	@scripts/run $(UPSTREAM)

test: ## install what the tests need and run all of them
	@scripts/deps test
	@scripts/test

soak: ## the longer proofs
	@scripts/deps test
	@scripts/soak

bench: ## measure beside the peers, in one run
	@bench/run

format: ## format the C sources
	@scripts/format

check-format: ## say which C sources are not formatted
	@scripts/format --check

tidy: ## clang-tidy over what changed (whole tree: scripts/tidy --all)
	@scripts/tidy

cppcheck: ## cppcheck over src/
	@scripts/cppcheck

arrows: ## check which folder includes which
	@scripts/check-arrows

pure: build ## check that the core does no I/O and keeps no state
	@scripts/check-pure

asan: ## build build/asan/samekey with ASan and UBSan
	@scripts/build asan

tsan: ## build build/tsan/samekey with TSan
	@scripts/build tsan

fuzz: ## run every fuzz target (FUZZ_SECONDS=60 each)
	@scripts/build clang fuzz_targets
	@scripts/fuzz $(FUZZ_SECONDS)

install: build ## install under PREFIX (/usr/local), below DESTDIR if set
	@cmake --install build --prefix $(PREFIX)

clean: ## remove what was built
	@rm -rf build
