#!/usr/bin/env bash
# The inner loop: format, clippy, unit tests, the firmware's tests, golden outputs. Minutes less than `make test`, which runs all
# of these and applications, simulations and programs of others besides, and builds with the same flags.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
failed=()
step() { # NAME COMMAND...
    local name=$1 before=$SECONDS
    shift
    "$@" || failed+=("$name")
    printf '== %s: %d s\n' "$name" $((SECONDS - before))
}

# What a build, or a command with a wrong argument, leaves behind does not belong into the repository.
# shellcheck disable=SC2317 # a step calls it by its name
root_files() {
    local known='.ci .config .git .github .gitignore CHANGELOG.md CONTRIBUTING.md Cargo.lock Cargo.toml LICENSE-APACHE LICENSE-MIT
        Makefile README.md SECURITY.md bench book.toml cm deny.toml docs examples fabric fixtures fuzz nic openqueue packaging ports
        rustfmt.toml target testkit tools transports units verbs'
    local unknown
    unknown=$(comm -13 <(tr -s ' \n' '\n' <<<"$known" | sort) <(find . -mindepth 1 -maxdepth 1 -printf '%f\n' | sort))
    [ -z "$unknown" ] || { printf 'not on the list of files in the root (tools/check.sh): %s\n' "$unknown" && return 1; }
}

# The names of the firmware's test programs.
shopt -s nullglob
firmware=()
for crate in transports nic; do
    for test in "$crate"/tests/*.rs "$crate"/tests/*/main.rs; do
        test=${test#"$crate"/tests/} test=${test%/main.rs}
        firmware+=(--test "${test%.rs}")
    done
done

step 'files' root_files
step 'format' tools/format.sh --check
step 'comments' tools/comments.sh
step 'clippy' cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
step 'tests' cargo nextest run --profile quick --workspace --all-features --lib --bins "${firmware[@]}" --test sim \
    -E 'not binary(sim) | test(golden::)' --status-level none
[ "${#failed[@]}" -eq 0 ] && echo "check: ok after $SECONDS s" && exit
printf 'FAILED: %s\n' "${failed[@]}"
exit 1
