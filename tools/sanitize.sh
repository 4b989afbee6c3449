#!/usr/bin/env bash
# The tests of the NIC's memory, ports and receive path under AddressSanitizer.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tools/nightly.sh
. tools/nightly.sh
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sanitize"
# The harness is some ten times slower so.
export IRNIC_SCHEDULES="${IRNIC_SCHEDULES:-100}"
RUSTFLAGS=-Zsanitizer=address cargo +nightly test --target "$host" -p irnic-nic --lib --tests --no-fail-fast
