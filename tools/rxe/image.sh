#!/usr/bin/env bash
# image.sh DIRECTORY [pyverbs]: makes there what a virtual machine with a Linux rxe device boots from (vmlinux, initrd.cpio),
# and an unpacked tree of the programs that are not installed (prefix: QEMU, perftest, …). With pyverbs, the machine also has
# Python, rdma-core's test suite and what that needs. Debian's packages are downloaded, none is installed; no privileges are
# needed. What is there already and fits this script is kept. README.md tells what bites.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
mkdir -p "${1:?the directory to work in}"
dir=$(realpath "$1")
prefix=$dir/prefix
flavour=${2:-plain}

# The kernel: the first of these that the distribution has. IRNIC_RXE_KERNEL=backports takes that of the distribution's backports.
kernels=(linux-image-6.12-amd64 linux-image-amd64)
origin=${IRNIC_RXE_KERNEL:-distribution}
packages=(qemu-system-x86 busybox-static cpio kmod iproute2 xz-utils zstd ibverbs-utils ibverbs-providers libibverbs-dev perftest
    rdmacm-utils)
# In the order of loading, dependencies aside. Without a crc32 of the crypto API `rdma link add` fails with ENOENT. rdma_ucm is
# /dev/infiniband/rdma_cm, for librdmacm.
modules=(virtio_pci virtio_net crc32_generic crc32_pclmul ib_uverbs rdma_ucm rdma_rxe)
programs=(ip rdma ibv_devinfo ibv_{rc,uc,ud,srq}_pingpong ib_{send,write,read,atomic}_{bw,lat}
    rping ucmatose udaddy udpong mckey rdma_{client,server} rstream riostream)
# To be unpacked even if they are installed.
always=()
runner=$here/../../verbs/tests/applications/run_suite.py

fail() {
    echo "rxe image: $*" >&2
    exit 1
}

case $flavour in
    plain) ;;
    pyverbs)
        packages+=(python3 python3-pyverbs)
        # The tests are in /usr/share/doc, which some hosts' dpkg leaves out.
        always=(python3-pyverbs)
        ;;
    *) fail "no such image: $flavour" ;;
esac
case $origin in
    distribution | backports) ;;
    *) fail "IRNIC_RXE_KERNEL is distribution or backports, not $origin" ;;
esac

# --- Packages ---------------------------------------------------------------------------------------------------------------

apt_options=()

# Package lists of our own, for a machine whose lists are empty or old.
use_own_lists() {
    mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
    apt_options=(-o Dir::State::lists="$dir/apt/lists" -o Dir::Cache="$dir/apt/cache" -o APT::Sandbox::User="$(id -un)")
    apt-get "${apt_options[@]}" -qq update >"$dir/log" 2>&1 || return 1
}

# The kernel alone comes from the backports: everything else is what the host has.
kernel_options=()
use_backports() {
    local codename
    # shellcheck disable=SC1091 # the host's
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mkdir -p "$dir/backports/lists/partial" "$dir/backports/cache/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $codename-backports main" \
        >"$dir/backports/sources.list"
    kernel_options=(-o Dir::Etc::sourcelist="$dir/backports/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User="$(id -un)"
        -o Dir::State::lists="$dir/backports/lists" -o Dir::Cache="$dir/backports/cache")
    apt-get "${kernel_options[@]}" -qq update >"$dir/log" 2>&1 || fail "no backports: $(tail -n 3 "$dir/log")"
}

# What has to be unpacked: the packages that apt would install, and the kernel.
plan() {
    local simulated kernel=''
    simulated=$(apt-get "${apt_options[@]}" install --simulate --no-install-recommends "${packages[@]}" 2>"$dir/log") || return 1
    for meta in "${kernels[@]}"; do
        kernel=$(apt-cache "${apt_options[@]}" "${kernel_options[@]}" depends "$meta" 2>>"$dir/log" | awk '/Depends: linux-image/ { print $2; exit }')
        [ -z "$kernel" ] || break
    done
    [ -n "$kernel" ] || { echo "none of ${kernels[*]}" >>"$dir/log"; return 1; }
    echo "$kernel" >"$dir/kernel-package"
    { awk '/^Inst/ { print $2 }' <<<"$simulated"; [ ${#always[@]} -eq 0 ] || printf '%s\n' "${always[@]}"; } | sort -u
}

download() {
    local wanted missing=() name kernel
    wanted=$(plan) || return 1
    for name in $wanted; do
        is_there "$name" || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] || (cd "$dir/debs" && apt-get "${apt_options[@]}" -qq download "${missing[@]}" >"$dir/log" 2>&1) || return 1
    kernel=$(<"$dir/kernel-package")
    is_there "$kernel" ||
        (cd "$dir/debs" && apt-get "${apt_options[@]}" "${kernel_options[@]}" -qq download "$kernel" >"$dir/log" 2>&1)
}

is_there() { compgen -G "$dir/debs/${1%%:*}_*.deb" >/dev/null; }

fetch() {
    command -v apt-get >/dev/null || fail 'no apt-get: the machine is made of Debian packages'
    [ "$(dpkg --print-architecture)" = amd64 ] || fail "made for amd64, not $(dpkg --print-architecture)"
    mkdir -p "$dir/debs" "$prefix"
    [ "$origin" = distribution ] || use_backports
    download || { use_own_lists && download; } || fail "the packages cannot be had: $(tail -n 3 "$dir/log")"
    local deb
    for deb in "$dir"/debs/*.deb; do
        [ -e "$deb.unpacked" ] && continue
        dpkg -x "$deb" "$prefix" && touch "$deb.unpacked"
    done
}

# A program, unpacked or installed.
program() {
    local at
    for at in "$prefix"/{usr/bin,usr/sbin,bin,sbin}/"$1" /usr/{bin,sbin}/"$1"; do
        if [ -e "$at" ] || [ -L "$at" ]; then
            echo "$at"
            return
        fi
    done
    fail "no $1"
}

# A library, unpacked or installed.
library() {
    local at
    for at in {"$prefix",}{/usr,}/lib/x86_64-linux-gnu/"$1"; do
        if [ -e "$at" ]; then
            echo "$at"
            return
        fi
    done
    fail "no $1"
}

# kmod's names are links to /bin/kmod, which need not be there.
as_kmod() { (exec -a "$1" "$(program kmod)" "${@:2}"); }

# --- Kernel -----------------------------------------------------------------------------------------------------------------

# The ELF file inside a bzImage, which QEMU boots by way of PVH: decompressing it here saves seconds of emulation at each boot.
unpack_kernel() {
    local setup offset length
    setup=$(od -An -tu1 -j $((0x1f1)) -N 1 "$1")
    read -r offset length < <(od -An -tu4 -j $((0x248)) -N 8 "$1")
    offset=$(((setup == 0 ? 5 : setup + 1) * 512 + offset))
    head -c $((offset + length)) "$1" | tail -c "$length" >"$dir/payload"
    # The decompressors complain of the length that follows the stream.
    if [ "$(head -c 1 "$dir/payload" | od -An -tx1)" = ' fd' ]; then
        "$(program xz)" -dcq --single-stream "$dir/payload" >"$dir/vmlinux" 2>/dev/null || true
    else
        "$(program zstd)" -dcq "$dir/payload" >"$dir/vmlinux" 2>/dev/null || true
    fi
    rm "$dir/payload"
    [ "$(head -c 4 "$dir/vmlinux" | tail -c 3)" = ELF ] || fail "$1 has a payload of an unknown kind"
}

# --- Initial file system ----------------------------------------------------------------------------------------------------

copy_modules() { # RELEASE
    local tree=$prefix name file
    [ -e "$prefix/lib/modules/$1" ] || tree=$prefix/usr
    [ -e "$tree/lib/modules/$1/modules.dep" ] || as_kmod depmod -b "$tree" "$1"
    for name in "${modules[@]}"; do
        # What is built in has no file.
        as_kmod modprobe -d "$tree" -S "$1" --show-depends "$name" 2>/dev/null || true
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
        name=$(basename "$file")
        name=${name%%.ko*}.ko
        case $file in
            *.xz) "$(program xz)" -dc "$file" >"$root/modules/$name" ;;
            *.zst) "$(program zstd)" -dcq "$file" >"$root/modules/$name" ;;
            *) cp "$file" "$root/modules/$name" ;;
        esac
        echo "$name"
    done >"$root/modules/order"
    grep -q rdma_rxe "$root/modules/order" || fail "kernel $1 has no rdma_rxe"
}

copy_libraries_of() { # FILE...
    local libraries=$prefix/usr/lib/x86_64-linux-gnu:$prefix/lib/x86_64-linux-gnu file
    for file in "$@"; do
        LD_LIBRARY_PATH=$libraries ldd "$file" | awk '/=> \// { print $3 } /^\t\/lib/ { print $1 }'
    done | sort -u | while read -r file; do
        case $file in
            /lib64/*) cp -L "$file" "$root/lib64/" ;;
            *) cp -L "$file" "$root/usr/lib/x86_64-linux-gnu/" ;;
        esac
    done
}

# The files of a directory, be they installed, unpacked, or some of them one and some the other.
copy_tree() { # DIRECTORY
    local base found=
    for base in '' "$prefix"; do
        [ -d "$base$1" ] || continue
        mkdir -p "$root$1"
        cp -r "$base$1/." "$root$1/"
        found=yes
    done
    [ -n "$found" ] || fail "no $1"
}

# Python, pyverbs and rdma-core's tests, as Debian installs them.
copy_suite() {
    local python version
    python=$(realpath "$(program python3)")
    version=${python##*/}
    cp "$python" "$root/usr/bin/python3"
    copy_tree "/usr/lib/$version"
    # What the tests never load.
    rm -rf "$root/usr/lib/$version"/{config-*,test,idlelib,lib2to3,distutils,pydoc_data,ensurepip,tkinter,turtledemo}
    copy_tree /usr/lib/python3/dist-packages/pyverbs
    copy_tree /usr/share/doc/rdma-core/tests
    cp "$runner" "$root/usr/bin/run_suite.py"
    mapfile -t -O ${#files[@]} files < <(find "$root/usr/lib/$version/lib-dynload" "$root/usr/lib/python3" -name '*.so')
    files+=("$python")
    dpkg-deb -f "$dir"/debs/python3-pyverbs_*.deb Version >"$root/pyverbs-version"
}

build() {
    local release busybox files=() name provider
    release=$(<"$dir/kernel-package")
    release=${release#linux-image-}
    unpack_kernel "$prefix/boot/vmlinuz-$release"
    root=$dir/root
    rm -rf "$root"
    mkdir -p "$root"/{bin,sbin,lib64,usr/bin,usr/sbin,usr/lib/x86_64-linux-gnu,etc/libibverbs.d,dev,proc,sys,tmp,root,modules}
    ln -s usr/lib "$root/lib"
    busybox=$(program busybox)
    cp "$busybox" "$root/bin/busybox"
    for name in $("$busybox" --list); do
        [ "$name" = busybox ] || ln -sf busybox "$root/bin/$name"
    done
    copy_modules "$release"
    for name in "${programs[@]}"; do
        rm -f "$root/bin/$name"
        cp -L "$(program "$name")" "$root/usr/bin/$name"
        files+=("$(program "$name")")
    done
    "${CC:-cc}" -O1 -Wall -Werror -I "$prefix/usr/include" -o "$dir/integrity" "$here/integrity.c" \
        -L "$prefix/usr/lib/x86_64-linux-gnu" -l:libibverbs.so.1 || fail 'integrity.c does not compile'
    cp "$dir/integrity" "$root/usr/bin/"
    files+=("$dir/integrity")
    for name in patience listens drain; do
        "${CC:-cc}" -O1 -Wall -Werror -shared -fPIC -I "$prefix/usr/include" -o "$dir/$name.so" "$here/$name.c" || fail "$name.c does not compile"
        cp "$dir/$name.so" "$root/usr/lib/"
    done
    for provider in {"$prefix",}/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so; do
        [ -e "$provider" ] || continue
        mkdir -p "$root/usr/lib/x86_64-linux-gnu/libibverbs"
        cp "$provider" "$root/usr/lib/x86_64-linux-gnu/libibverbs/"
        files+=("$provider")
        break
    done
    [ "$flavour" != pyverbs ] || copy_suite
    copy_libraries_of "${files[@]}"
    # rping cancels threads, for which glibc loads it.
    cp -L "$(library libgcc_s.so.1)" "$root/usr/lib/x86_64-linux-gnu/"
    echo 'driver rxe' >"$root/etc/libibverbs.d/rxe.driver"
    echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
    echo '127.0.0.1 localhost' >"$root/etc/hosts"
    install -m 755 "$here/guest/init" "$root/init"
    install -m 755 "$here/guest/serve" "$root/bin/serve"
    install -m 755 "$here/guest/suite" "$root/bin/suite"
    (cd "$root" && find . | "$(program cpio)" -o -H newc --quiet) >"$dir/initrd.cpio"
}

# One at a time.
exec 9>"$dir/lock"
flock 9
stamp="$flavour $origin $(cat "$here"/image.sh "$here"/*.c "$here"/guest/* "$runner" | sha256sum)"
[ "$(cat "$dir/stamp" 2>/dev/null)" = "$stamp" ] && exit 0
rm -f "$dir/stamp"
fetch
build
echo "$stamp" >"$dir/stamp"
