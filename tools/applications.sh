#!/usr/bin/env bash
# Runs what `make test` leaves out: applications over every port, family and loss, kill and churn matrices, virtual machines,
# the long form of rxe's tests, more schedules. `make test` installs the programs. The last lines count the tests.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
log="${CARGO_TARGET_DIR:-target}/test/applications"
mkdir -p "${log%/*}" || exit 1
: >"$log"
status=0

step() {
    "$@" 2>&1 | tee -a "$log"
    [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
}

export IRNIC_APPLICATIONS=long IRNIC_SCHEDULES=20000 IRNIC_LIARS=2000
step cargo test --release -p irnic-verbs --test applications --no-fail-fast
step cargo test --release -p irnic-verbs --test rxe --no-fail-fast
step cargo test -p irnic --test mpi mpi4py
step cargo test --release -p irnic-nic --test '*' --no-fail-fast
grep -h '^SKIPPED' "$log" | sort -u
grep -h '^test .* \.\.\. FAILED$' "$log" | sort -u
grep '^test result:' "$log"
exit "$status"
