#!/usr/bin/env bash
# Runs what `make test` leaves out, on the optimised library: applications over every port, family and loss, kill and churn
# matrices, virtual machines, the long form of rxe's tests, more schedules. `make test` installs the programs. The last lines count the tests.
#
# What fails beside another program is run once more by itself.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tools/steps.sh
log="${CARGO_TARGET_DIR:-target}/test/applications"
mkdir -p "${log%/*}" || exit 1
: >"$log"
status=0

tests() { # AGAIN ARGUMENTS...: cargo test with ARGUMENTS, and with AGAIN for each test that runs again
    local with=$1 from
    shift
    from=$(lines_of "$log")
    show "$log" "$log" cargo test "$@" --no-fail-fast && return
    run_again "$log" "$(failed_targets "$log" "$from")" "$(killed_targets "$log" "$from")" \
        "$(failed_tests "$log" "$from")" "$with" || status=1
}

export IRNIC_APPLICATIONS=long IRNIC_SCHEDULES=20000 IRNIC_LIARS=2000 IRNIC_KILLS=15
IRNIC_APPLICATIONS=all tests --release --release -p irnic-verbs --test applications
tests --release --release -p irnic-verbs --test rxe
tests --all-features -p irnic --test mpi mpi4py
tests --all-features --all-features -p irnic --test lab_kills --test lab_applications --test guests
tests --release --release -p irnic-nic --test '*'
# The book's links are looked at where mdbook is.
tools/book.sh >>"$log" 2>&1 || status=1
tests --all-features --all-features -p irnic --test ci rust
tests --all-features --all-features -p irnic --test book
tests --all-features --all-features -p irnic --test sweep slurm
tests --all-features --all-features -p irnic --test packages
{
    grep -h '^SKIPPED' "$log" | sort -u
    grep '^AGAIN' "$log" | sort | uniq -c
    awk '/^failures:$/ { said = 0 } /^---- .* ----$/ { said = 1 } said' "$log" | head -c 8000
    grep '^test result:' "$log"
    printf 'took %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
} | tee "${log%/*}/applications-summary"
exit "$status"
