#!/usr/bin/env bash
# Format, clippy, rustdoc, shellcheck, cargo-deny. Runs them all, fails if one did.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
status=0
check() {
    printf '== %s\n' "$*"
    "$@" || status=1
}

check tools/format.sh --check
check cargo clippy --workspace --all-targets --all-features -- -D warnings
check env RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features
check tools/comments.sh
if command -v shellcheck >/dev/null; then
    check shellcheck tools/*.sh bench/*.sh bench/applications/*.sh tools/rxe/*.sh tools/rxe/guest/* .ci/run
else
    echo 'SKIPPED shellcheck: it is not installed'
fi
command -v cargo-deny >/dev/null || cargo install --locked cargo-deny || exit 1
deny=(cargo deny --log-level error check --hide-inclusion-graph)
check "${deny[@]}" licenses bans sources
# The database of advisories is on the network.
if cargo deny --log-level off fetch db >/dev/null 2>&1; then
    check "${deny[@]}" --disable-fetch advisories
else
    echo 'SKIPPED advisories: their database cannot be fetched'
fi
[ "$status" -eq 0 ] && echo 'lint: ok' || echo 'lint: FAILED'
exit "$status"
