#!/usr/bin/env bash
# The tests of the NIC's memory, ports and receive path, and those of the verbs, under AddressSanitizer.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tools/nightly.sh
. tools/nightly.sh
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sanitize"
# The harness is some ten times slower so.
export IRNIC_SCHEDULES="${IRNIC_SCHEDULES:-100}"
# What applications leave behind on purpose stays until the process ends.
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
status=0
RUSTFLAGS=-Zsanitizer=address cargo +nightly test --target "$host" -p irnic-nic -p irnic-ports --lib --tests --no-fail-fast || status=1
# The shared object itself cannot be checked so: it would need the sanitizer's runtime in every program that loads it.
RUSTFLAGS=-Zsanitizer=address cargo +nightly test --target "$host" -p irnic-verbs \
    --test semantics --test threads --test hostile --test devices --test fork || status=1
exit "$status"
