#!/usr/bin/env bash
# Runs what `make test` leaves out: applications over every port, family and loss, kill and churn matrices, virtual machines,
# the long form of rxe's tests, more schedules. `make test` installs the programs. The last lines count the tests.
#
# What fails beside another program is run once more by itself, and said to be: AGAIN.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
log="${CARGO_TARGET_DIR:-target}/test/applications"
mkdir -p "${log%/*}" || exit 1
: >"$log"
status=0

step() { # COMMAND...
    "$@" 2>&1 | tee -a "$log"
    return "${PIPESTATUS[0]}"
}

failed_in() { # LINES: the names of tests that failed in the log from that line on
    tail -n "+$1" "$log" | sed -n 's/^test \(.*[^ ]\) *\.\.\. FAILED$/\1/p' | sort -u
}

programs() { # TARGET: a test binary of irnic-verbs, optimised; what fails is run again
    local from name
    from=$(($(wc -l <"$log") + 1))
    step cargo test --release -p irnic-verbs --test "$1" --no-fail-fast && return
    mapfile -t names < <(failed_in "$from")
    [ "${#names[@]}" -gt 0 ] || status=1
    for name in "${names[@]}"; do
        printf 'AGAIN %s\n' "$name" | tee -a "$log"
        step cargo test --release -p irnic-verbs --test "$1" -- --exact "$name" && continue
        again+=("$name")
        status=1
    done
}

again=()
export IRNIC_APPLICATIONS=long IRNIC_SCHEDULES=20000 IRNIC_LIARS=2000
programs applications
programs rxe
step cargo test -p irnic --test mpi mpi4py || status=1
step cargo test --release -p irnic-nic --test '*' --no-fail-fast || status=1
{
    grep -h '^SKIPPED' "$log" | sort -u
    grep '^AGAIN' "$log" | sort | uniq -c
    [ "${#again[@]}" -eq 0 ] || printf 'FAILED twice: %s\n' "${again[@]}"
    grep '^test result:' "$log"
    printf 'took %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
} | tee "${log%/*}/applications-summary"
exit "$status"
