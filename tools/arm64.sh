#!/usr/bin/env bash
# Builds irnic for aarch64 and tests it under qemu-user, with Debian's arm64 headers and perftest.
# Functions are called by `step`.
# shellcheck disable=SC2317,SC2329
usage='usage: tools/arm64.sh [quick|all]

quick  build, ABI against Debian'\''s arm64 headers, perftest under irnic run, golden outputs (x86-64'\''s hashes)
all    also clippy, and the tests of units, transports, cm, nic, ports and fabric (default)

It installs a cross compiler, qemu-user and the Rust target where it may, and unpacks Debian packages for arm64 into
target/arm64/sysroot. Programs start programs: the kernel has to know qemu, by binfmt_misc. Where it does not, this runs in
a user namespace with a binfmt_misc of its own (Linux 6.7). Where that is not allowed either, it says SKIPPED.'
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
case ${1:-all} in
quick | all) form=${1:-all} ;;
-h | --help) echo "$usage" && exit ;;
*) echo "tools/arm64.sh: unknown form '$1'; expected quick or all" >&2 && exit 2 ;;
esac
target=aarch64-unknown-linux-gnu
place=$PWD/target/arm64
sysroot=$place/sysroot
export CARGO_TARGET_DIR=$place
# Nobody debugs here.
export CARGO_PROFILE_DEV_DEBUG=0

# Programs under test would take it for one of the library's settings, which it is not.
required=${IRNIC_REQUIRE:-}
unset IRNIC_REQUIRE

skipped() { # REASON
    echo "SKIPPED arm64: $1" >&2
    [ "$required" != all ]
    exit
}

runs_arm64() { # whether the kernel does
    QEMU_LD_PREFIX=$sysroot "$sysroot/bin/true" 2>/dev/null
}

if [ "$(uname -m)" = aarch64 ]; then
    echo 'this machine is one: make test'
    exit 0
fi

# Inside the namespace.
if [ "${IRNIC_ARM64_INSIDE:-}" = mount ]; then
    unset IRNIC_ARM64_INSIDE
    # binfmt_misc's documentation: an ELF file of 64 bits, little-endian, an executable or a shared object for 0xb7, aarch64;
    # F: qemu is opened now, wherever programs look for it.
    magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc &&
        printf ':qemu-aarch64:M::%s:%s:%s:F' "$magic" "$mask" "$(command -v qemu-aarch64-static)" \
            >/proc/sys/fs/binfmt_misc/register
    runs_arm64 || skipped 'the kernel starts no programs for aarch64, and has no binfmt_misc for namespaces'
fi

if ! runs_arm64; then
    mkdir -p "$place"
    as=()
    [ "$(id -u)" -eq 0 ] || as=(sudo -n)
    missing=()
    for part in aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static; do
        command -v "${part%:*}" >/dev/null || missing+=("${part#*:}")
    done
    if [ "${#missing[@]}" -gt 0 ]; then
        echo "installing ${missing[*]}"
        install=("${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}")
        { "${install[@]}" || { "${as[@]}" apt-get -qq update && "${install[@]}"; }; } >"$place/apt" 2>&1 ||
            skipped "${missing[*]} could not be installed ($place/apt)"
    fi
    rustup target list --installed 2>/dev/null | grep -qx "$target" || rustup target add "$target" >"$place/rustup" 2>&1 ||
        skipped "rustup has no target $target ($place/rustup)"
    tools/arm64-sysroot.sh "$sysroot" >"$place/sysroot.log" 2>&1 ||
        skipped "Debian's packages for arm64 could not be fetched ($place/sysroot.log)"
    if ! runs_arm64; then
        unshare --user --map-root-user --mount true 2>/dev/null ||
            skipped 'the kernel starts no programs for aarch64, and allows no user namespaces'
        IRNIC_REQUIRE=$required IRNIC_ARM64_INSIDE=mount exec unshare --user --map-root-user --mount tools/arm64.sh "$form"
    fi
fi

export QEMU_LD_PREFIX=$sysroot
# The C compiler of the tests, and the linker, with Debian's headers and libraries.
printf '#!/bin/sh\nexec aarch64-linux-gnu-gcc --sysroot="%s" "$@"\n' "$sysroot" >"$place/cc"
chmod +x "$place/cc"
export CC=$place/cc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$place/cc

failed=()
step() { # NAME COMMAND...
    local name=$1 before=$SECONDS
    shift
    printf '== arm64: %s\n' "$name"
    "$@" || failed+=("$name")
    printf '== arm64: %s: %d s\n' "$name" $((SECONDS - before))
}

tests() { # ARGUMENTS...
    cargo test --quiet --target "$target" --no-fail-fast "$@"
}

short() { # ARGUMENTS...: of the same packages each time, so that cargo chooses the same features and builds nothing twice
    tests -p irnic-verbs -p irnic -p irnic-nic "$@"
}

layout() { # Without the headers the test would skip itself.
    short --test layout -- --nocapture 2>&1 | tee "$place/layout.log"
    [ "${PIPESTATUS[0]}" -eq 0 ] && ! grep '^SKIPPED' "$place/layout.log"
}

perftest() {
    local irnic=$place/$target/debug/irnic server status
    local bandwidth=("$irnic" run -- "$sysroot/usr/bin/ib_write_bw" -d irnic0 -n 100 -s 4096 --port 18577)
    timeout 120 "${bandwidth[@]}" >"$place/server.log" 2>&1 &
    server=$!
    for _ in {1..300}; do
        ss -Hltn 'sport = :18577' | grep -q . && break
        sleep 0.1
    done
    timeout 120 "${bandwidth[@]}" localhost >"$place/client.log" 2>&1
    status=$?
    wait "$server" || status=$?
    # Its line of figures: bytes, iterations, bandwidth.
    if [ "$status" -eq 0 ] && grep -E '^ *4096 +100 ' "$place/client.log"; then return; fi
    cat "$place/server.log" "$place/client.log"
    return 1
}

step 'build' short --test layout --test sim --test schedules --no-run
# By itself: together with others it would have cargo choose other features and build them all again.
step 'build of what is preloaded' cargo build --quiet --target "$target" -p irnic-sysfs -p irnic-clock
step 'layout' layout
step 'perftest' perftest
# One thread each: threads that spin for each other take minutes where qemu runs them.
step 'golden outputs' short --test sim golden::commands
step 'golden schedules' short --test schedules golden
if [ "$form" = all ]; then
    step 'clippy' cargo clippy --quiet --target "$target" --workspace --all-targets --all-features -- -D warnings
    step 'tests' tests -p irnic-units -p irnic-transports -p irnic-cm -p irnic-nic -p irnic-fabric
    # qemu-user refuses SO_RXQ_OVFL (ENOPROTOOPT), without which there is no socket.
    echo 'SKIPPED arm64: udp::tests, frames::tests of ports: qemu-user does not know the options of their sockets' >&2
    step 'tests of ports' tests -p irnic-ports --lib -- --skip udp::tests --skip tests::udp --skip frames::tests
fi
[ "${#failed[@]}" -eq 0 ] && echo "arm64: ok after $SECONDS s" && exit
printf 'FAILED arm64: %s\n' "${failed[@]}"
exit 1
