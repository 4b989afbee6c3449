#!/usr/bin/env bash
# Checks models of what threads and processes share by loom: every order in which a weakly ordered machine may let them see
# each other's accesses, up to a number of preemptions. The models are of the code itself, with loom's words in place of
# shared memory.
set -euo pipefail
cd "$(dirname "$0")/.."
# Other flags, other artefacts.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" RUSTFLAGS='--cfg loom'
exec cargo test --release "$@" -p irnic-ports --lib model::
