#!/usr/bin/env bash
# Runs what `make test` leaves out of the tests of applications and of rxe: every program over every port, family and loss,
# kill and churn matrices, virtual machines. `make test` installs the programs. The last lines count the tests.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
logs="${CARGO_TARGET_DIR:-target}/test"
mkdir -p "$logs" || exit 1
export IRNIC_APPLICATIONS=long
cargo test --release -p irnic-verbs --test applications --test rxe --no-fail-fast 2>&1 | tee "$logs/applications"
status=${PIPESTATUS[0]}
cargo test -p irnic --test mpi mpi4py 2>&1 | tee -a "$logs/applications"
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
grep -h '^SKIPPED' "$logs/applications" | sort -u
grep -h '^test .* \.\.\. FAILED$' "$logs/applications" | sort -u
grep '^test result:' "$logs/applications"
exit "$status"
