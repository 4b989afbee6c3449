#!/usr/bin/env bash
# Formats all Rust in the repository; with --check, only says what is not formatted.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
status=0
cargo fmt --all -- "$@" || status=1
for manifest in fuzz bench/examples/ibverbs bench/examples/rdma-cm; do
    cargo fmt --manifest-path "$manifest/Cargo.toml" -- "$@" || status=1
done
exit "$status"
