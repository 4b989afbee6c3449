#!/usr/bin/env bash
# pyverbs.sh [DIRECTORY]: runs rdma-core's pyverbs suite on a Linux rxe device in a virtual machine and writes what each case
# does to fixtures/pyverbs-rxe.txt. That takes six to ten minutes, and the first time one more for the packages. The image is made,
# and kept, in DIRECTORY (target/rxe-pyverbs).
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
dir=${1:-${CARGO_TARGET_DIR:-target}/rxe-pyverbs}
fixture=fixtures/pyverbs-rxe.txt
# Seconds: ten minutes at most as a rule, more if cases hang (five minutes each) or the host is busy.
patience=3000

fail() {
    echo "pyverbs: $*; see $dir/console and $dir/results" >&2
    exit 1
}

tools/rxe/image.sh "$dir" pyverbs
dir=$(realpath "$dir")
export PATH=$dir/prefix/usr/bin:$PATH
# Alone in its network: rxe passes what goes to its own address on by itself. The second serial line is for results alone,
# whatever the kernel has to say on the first.
# shellcheck disable=SC2054 # the commas are QEMU's
machine=(-M q35,accel=tcg -cpu max -smp 2 -m 1024 -nodefaults -no-user-config -display none -no-reboot
    -L "$dir/prefix/usr/share/qemu" -L "$dir/prefix/usr/share/seabios"
    -kernel "$dir/vmlinux" -initrd "$dir/initrd.cpio" -serial "file:$dir/console" -serial "file:$dir/results"
    -netdev user,id=n0,restrict=on -device virtio-net-pci,netdev=n0,mac=52:54:00:77:00:11,romfile=
    -append 'console=ttyS0 quiet panic=-1 addr4=10.77.0.11/24 addr6=fd77::11/64 mtu=1500 script=/bin/suite')
LD_LIBRARY_PATH=$dir/prefix/usr/lib/x86_64-linux-gnu:$dir/prefix/lib/x86_64-linux-gnu \
    timeout "$patience" qemu-system-x86_64 "${machine[@]}" || fail 'the machine did not end well'
tr -d '\r' <"$dir/results" >"$dir/lines"
grep -q '^SUITE	ended with 0$' "$dir/lines" || fail 'the suite did not come to its end'
! grep GUEST-FAILED "$dir/console" >&2 || fail 'the machine lacks something'
{
    echo "# What Linux' rxe driver does with the cases of rdma-core's pyverbs suite. Made by: tools/rxe/pyverbs.sh"
    sed -n 's/^SUITE	\(Linux\|python3-pyverbs\) /# \1 /p' "$dir/lines"
    sed -n 's/^CASE	tests\.//p' "$dir/lines" | tr '\t' ' ' | sed 's/ *$//' | LC_ALL=C sort
} >"$dir/fixture"
mv "$dir/fixture" "$fixture"
grep -v '^#' "$fixture" | awk '{ n[$2]++ } END { for (what in n) printf "%d %s\n", n[what], what }'
