#!/usr/bin/env bash
# Every fuzz target for $1 seconds, from the committed corpus on. What is found new is kept beside the build, for
# `cargo +nightly fuzz cmin`; an input that fails is kept in fuzz/artifacts and named.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tools/nightly.sh
. tools/nightly.sh
seconds=${1:-60}
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz || exit 1
found="$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz-corpus"
status=0
for target in $(cargo +nightly fuzz list); do
    printf '== %s\n' "$target"
    mkdir -p "$found/$target"
    cargo +nightly fuzz run "$target" "$found/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -timeout=10 -max_len=4096 -print_final_stats=1 || status=1
done
[ "$status" -eq 0 ] && echo 'fuzz: nothing found' || echo 'fuzz: FAILED'
exit "$status"
