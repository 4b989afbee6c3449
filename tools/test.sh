#!/usr/bin/env bash
# Runs every test there is, those with applications in their short forms. The last line counts them; the status is 0 only if
# nothing failed, or what failed passed when it ran again. A step that fails does not keep the later ones from running.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tools/steps.sh

logs="${CARGO_TARGET_DIR:-target}/test"
mkdir -p "$logs" || exit 1
out="$logs/stdout" err="$logs/stderr" summary="$logs/summary"
: >"$out"
: >"$err"
failed_steps=()
again=0
other=0

step() { # NAME COMMAND...: standard output and error stay apart in the logs
    local name=$1 before=$SECONDS status failed_before failed_after
    shift
    printf '\n== %s\n' "$name"
    failed_before=$(count failed)
    show "$out" "$err" "$@"
    status=$?
    failed_after=$(count failed)
    printf '== %s: %s after %d s\n' "$name" "$([ "$status" -eq 0 ] && echo ok || echo FAILED)" $((SECONDS - before))
    # What failed without a test's saying so: a build, a check.
    if [ "$status" -ne 0 ]; then
        [ "$failed_after" -gt "$failed_before" ] || other=$((other + 1))
        failed_steps+=("$name")
    fi
    return "$status"
}

tests() { # NAME AGAIN ARGUMENTS...: cargo test with ARGUMENTS, and with AGAIN for each test that runs again
    local name=$1 with=$2 from_out from_err other_before killed
    shift 2
    from_out=$(lines_of "$out")
    from_err=$(lines_of "$err")
    other_before=$other
    step "$name" cargo test "$@" --no-fail-fast && return
    killed=$(killed_targets "$err" "$from_err")
    [ -z "$killed" ] || other=$((other_before + $(wc -l <<<"$killed")))
    run_again "$err" "$(failed_targets "$err" "$from_err")" "$killed" "$(failed_tests "$out" "$from_out")" "$with" &&
        unset 'failed_steps[-1]'
    again=$((again + passed_again))
}

count() { # passed, failed or ignored, summed over all results of cargo test
    awk -v what="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i == what ";") n += $(i - 1) } END { print n + 0 }' "$out"
}

# What tests run that is not Rust: Wireshark's dissector, RDMA applications of the distribution, and a browser.
packages=(tshark:tshark ib_write_bw:perftest ibv_devinfo:ibverbs-utils ucx_info:ucx-utils fi_pingpong:libfabric-bin
    ibstat:infiniband-diags qperf:qperf rping:rdmacm-utils mpicc.mpich:libmpich-dev mpirun.mpich:mpich fio:fio
    mpirun:openmpi-bin mpicc:libopenmpi-dev ip:iproute2 cmake:cmake pkg-config:pkg-config python3:python3 chromium:chromium
    iscsi-inq:libiscsi-bin curl:curl busybox:busybox NPtcp:netpipe-tcp groff:groff-base mmdebstrap:mmdebstrap podman:podman
    parallel:parallel sbatch:slurm-wlm munged:munge)
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

if command -v cargo >/dev/null; then
    install_components
    install_packages
    step 'format' cargo fmt --all --check
    step 'format of the fuzz targets' cargo fmt --manifest-path fuzz/Cargo.toml --check
    step 'format of the example' cargo fmt --manifest-path bench/examples/ibverbs/Cargo.toml --check
    step 'format of the example of rdma_cm' cargo fmt --manifest-path bench/examples/rdma-cm/Cargo.toml --check
    step 'clippy' cargo clippy --workspace --all-targets --all-features -- -D warnings
    tests 'tests' --all-features --workspace --all-features
    step 'models' tools/models.sh
else
    echo 'no cargo: install Rust first, see https://rustup.rs'
    other=1
fi

skipped=$(grep -c '^SKIPPED' "$err")
passed=$(($(count passed) - skipped))
failed=$(($(count failed) + other - again))
skipped=$((skipped + $(count ignored)))
echo
grep '^SKIPPED' "$err" | sort -u
grep '^AGAIN' "$err" | sort | uniq -c
# What failing tests said, also of those that passed when they ran again.
awk '/^failures:$/ { said = 0 } /^---- .* ----$/ { said = 1 } said' "$out" | head -c 8000
[ "$failed" -eq 0 ] || grep -h '^test .* \.\.\. FAILED$' "$out" | sort -u
[ "${#failed_steps[@]}" -eq 0 ] || printf 'FAILED: %s\n' "${failed_steps[@]}"
printf 'took %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
echo "$passed passed, $failed failed, $skipped skipped" | tee "$summary"
[ "$failed" -eq 0 ]
