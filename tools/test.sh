#!/usr/bin/env bash
# Runs every test there is, those with applications in their short forms. The last line counts them; the status is 0 only if
# nothing failed. Nothing is run again here: which tests may do so themselves, and why, is in testkit/src/retry.rs. A step
# that fails does not keep the later ones from running.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# Programs under test would take it for one of the library's settings, which it is not.
export TESTS_REQUIRE=${IRNIC_REQUIRE:-}
unset IRNIC_REQUIRE

target=${CARGO_TARGET_DIR:-target}
logs="$target/test"
# Where nextest writes it, whatever CARGO_TARGET_DIR says.
junit=target/nextest/default/junit.xml
mkdir -p "$logs" || exit 1
failed_steps=()

step() { # NAME COMMAND...: shows what the command prints, and keeps it in a file of the step's name
    local name=$1 before=$SECONDS status
    shift
    printf '\n== %s\n' "$name"
    "$@" 2>&1 | tee "$logs/${name// /-}"
    status=${PIPESTATUS[0]}
    printf '== %s: %s after %d s\n' "$name" "$([ "$status" -eq 0 ] && echo ok || echo FAILED)" $((SECONDS - before))
    [ "$status" -eq 0 ] || failed_steps+=("$name")
    return "$status"
}

count() { # passed, failed or ignored of the doctests
    awk -v what="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i == what ";") n += $(i - 1) } END { print n + 0 }' \
        "$logs/doctests"
}

# What tests run that is not Rust: Wireshark's dissector, RDMA applications of the distribution, and a browser.
packages=(tshark:tshark ib_write_bw:perftest ibv_devinfo:ibverbs-utils ucx_info:ucx-utils fi_pingpong:libfabric-bin
    ibstat:infiniband-diags qperf:qperf rping:rdmacm-utils mpicc.mpich:libmpich-dev mpirun.mpich:mpich fio:fio
    mpirun:openmpi-bin mpicc:libopenmpi-dev ip:iproute2 cmake:cmake pkg-config:pkg-config python3:python3 chromium:chromium
    iscsi-inq:libiscsi-bin curl:curl busybox:busybox NPtcp:netpipe-tcp groff:groff-base mmdebstrap:mmdebstrap podman:podman
    parallel:parallel sbatch:slurm-wlm munged:munge musl-gcc:musl-tools gdb:gdb file:file
    valgrind:valgrind)
files=(/usr/include/infiniband/verbs.h:libibverbs-dev /usr/include/rdma/rdma_cma.h:librdmacm-dev
    /usr/include/ucp/api/ucp.h:libucx-dev /usr/lib/python3/dist-packages/pyverbs:python3-pyverbs
    /usr/sbin/tgtd:tgt /usr/include/iscsi/iscsi.h:libiscsi-dev
    /usr/include/libnl3/netlink/netlink.h:libnl-3-dev /usr/include/libnl3/netlink/route/rtnl.h:libnl-route-3-dev
    /usr/share/doc/libclang-dev:libclang-dev)

install_packages() {
    local missing=() part as=() install
    for part in "${packages[@]}"; do
        command -v "${part%:*}" >/dev/null || missing+=("${part#*:}")
    done
    for part in "${files[@]}"; do
        [ -e "${part%:*}" ] || missing+=("${part#*:}")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    command -v apt-get >/dev/null || { echo "no apt-get: to run every test install ${missing[*]}"; return; }
    if [ "$(id -u)" -ne 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "to run every test: sudo apt-get install ${missing[*]}"
            return
        fi
        as=(sudo)
    fi
    echo "installing ${missing[*]}"
    install=("${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}")
    "${install[@]}" >"$logs/apt" 2>&1 && return
    "${as[@]}" apt-get -qq update >>"$logs/apt" 2>&1
    "${install[@]}" >>"$logs/apt" 2>&1 || { echo "${missing[*]} could not be installed:"; tail -n 3 "$logs/apt"; }
}

install_components() { # rustfmt and clippy, which some toolchains come without
    local part
    for part in fmt:rustfmt clippy:clippy; do
        cargo "${part%:*}" --version >/dev/null 2>&1 && continue
        rustup component add "${part#*:}" || echo "cargo ${part%:*} is missing"
    done
}

install_nextest() { # which runs each test in a process of its own; from source, in three minutes instead of a release's eight
    cargo nextest --version >/dev/null 2>&1 || CARGO_PROFILE_DEV_DEBUG=0 \
        cargo install --locked --debug --no-default-features --features default-no-update cargo-nextest
}

if ! command -v cargo >/dev/null; then
    echo 'no cargo: install Rust first, see https://rustup.rs'
    exit 1
fi
rm -f "$logs/doctests" "$logs/summary" "$junit"
install_components
install_packages
install_nextest
# A crash leaves a core, of which the summary prints the backtrace: in the folder of the test's crate.
ulimit -c unlimited 2>/dev/null
folders=$(sed -n '/^members = \[/,/\]/s/^ *"\(.*\)",*$/\1/p' Cargo.toml)
[ -n "$folders" ] || { echo 'no members in Cargo.toml'; exit 1; }
for folder in $folders; do
    # bench/core is a crate.
    find "$folder" -maxdepth 1 -type f \( -name core -o -name 'core.[0-9]*' \) -delete
done

# Some tests wait, for others' processes or for time.
lanes=$(($(nproc) * 3 / 2))
step 'format' tools/format.sh --check
step 'clippy' cargo clippy --workspace --all-targets --all-features -- -D warnings
step 'tests' cargo nextest run --test-threads "$lanes" --workspace --all-features --status-level pass
# irnic-models has those of irnic-ports.
step 'doctests' cargo test --doc --workspace --exclude irnic-models --all-features

echo
# shellcheck disable=SC2086
cargo run --quiet -p irnic-testkit --bin summary -- "$junit" $folders >"$logs/summary.txt" || failed_steps+=('summary')
sed '$d' "$logs/summary.txt"
read -r passed _ failed _ skipped _ < <(tail -n 1 "$logs/summary.txt")
# Tests that are marked as ignored: their fixtures say why.
ignored=$(sed -n 's/^ *Summary .* \([0-9]*\) skipped$/\1/p' "$logs/tests" | tail -n 1)
[ "${#failed_steps[@]}" -eq 0 ] || printf 'FAILED step: %s\n' "${failed_steps[@]}"
printf 'took %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
failed=$((failed + $(count failed)))
# What failed without a test's saying so: a build, a check.
[ "$failed" -gt 0 ] || failed=${#failed_steps[@]}
echo "$((passed + $(count passed))) passed, $failed failed, $((skipped + ${ignored:-0} + $(count ignored))) skipped" |
    tee "$logs/summary"
[ "${#failed_steps[@]}" -eq 0 ]
