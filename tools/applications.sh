#!/usr/bin/env bash
# Runs what `make test` leaves out, on the optimised library: applications over every port, family and loss, kill and churn
# matrices, virtual machines, the long form of rxe's tests, more schedules. `make test` installs the programs. The last line
# counts the tests. Nothing is run again here: testkit/src/retry.rs.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
target=${CARGO_TARGET_DIR:-target}
logs="$target/test"
mkdir -p "$logs" || exit 1
rm -f "$logs"/applications-*.xml
status=0
runs=0

tests() { # ARGUMENTS...: cargo nextest run with ARGUMENTS
    rm -f target/nextest/default/junit.xml
    cargo nextest run "$@" || status=1
    runs=$((runs + 1))
    mv target/nextest/default/junit.xml "$logs/applications-$runs.xml" || status=1
}

ulimit -c unlimited 2>/dev/null
export IRNIC_APPLICATIONS=long IRNIC_SCHEDULES=20000 IRNIC_LIARS=2000 IRNIC_KILLS=15
IRNIC_APPLICATIONS=all tests --release -p irnic-verbs --test applications --test rxe
tests --release -p irnic-nic --tests
# The book's links are looked at where mdbook is.
tools/book.sh || status=1
tests --workspace --all-features -E 'binary(run) & (test(mpi4py) | test(ucx_connects) | test(intels_benchmarks) | test(nixl) | test(newest_suite)) | binary(lab) & (test(kills::) | test(applications::) | test(libraries::))
    | binary(guests) | binary(book) | binary(cli) & (test(ci::an_application_in_rust) | test(packages::))
    | binary(sim) & test(slurm)'
cargo run --quiet -p irnic-testkit --bin summary -- "$logs"/applications-*.xml verbs nic bench | tee "$logs/applications-summary"
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
printf 'took %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
exit "$status"
