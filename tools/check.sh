#!/usr/bin/env bash
# The inner loop: format, clippy, unit tests, models, the firmware's tests, golden outputs. Minutes less than `make test`, which runs all of
# these and applications, simulations and programs of others besides.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
failed=()
step() { # NAME COMMAND...
    local name=$1 before=$SECONDS
    shift
    "$@" || failed+=("$name")
    printf '== %s: %d s\n' "$name" $((SECONDS - before))
}

step 'format' cargo fmt --all --check
step 'comments' tools/comments.sh
step 'clippy' cargo clippy --quiet --workspace --all-targets -- -D warnings
step 'unit tests' cargo test --quiet --workspace --lib --bins
step 'models' tools/models.sh --quiet
step 'firmware' cargo test --quiet -p irnic-transports -p irnic-nic --tests
step 'golden outputs' cargo test --quiet -p irnic --test golden
[ "${#failed[@]}" -eq 0 ] && echo "check: ok after $SECONDS s" && exit
printf 'FAILED: %s\n' "${failed[@]}"
exit 1
