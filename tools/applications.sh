#!/usr/bin/env bash
# Runs what `make test` leaves out: the tests of applications and of rxe with every program over every port, family and loss,
# kill and churn matrices, virtual machines; more schedules of the firmware, and all of its tests with optimisation. `make test`
# installs the programs. The last lines count the tests.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
logs="${CARGO_TARGET_DIR:-target}/test"
mkdir -p "$logs" || exit 1
{
    IRNIC_SCHEDULES=20000 IRNIC_LIARS=2000 cargo test --release -p irnic-nic --test '*' --no-fail-fast
    harness=$?
    IRNIC_APPLICATIONS=long cargo test --release -p irnic-verbs --test applications --test rxe --no-fail-fast &&
        [ "$harness" -eq 0 ]
} 2>&1 | tee "$logs/applications"
status=${PIPESTATUS[0]}
grep -h '^SKIPPED' "$logs/applications" | sort -u
grep -h '^test .* \.\.\. FAILED$' "$logs/applications" | sort -u
grep '^test result:' "$logs/applications"
exit "$status"
