#!/usr/bin/env bash
# usage: tools/arm64-sysroot.sh FOLDER
# Unpacks Debian's C library, rdma-core's headers and libraries, and perftest, for arm64, with all they need. The host's
# packages stay as they are; apt's state is beside the folder.
set -euo pipefail
sysroot=${1:?the folder to unpack into}
suite=bookworm
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ ! -e "$sysroot/unpacked-$suite" ] || exit 0
state=$sysroot.apt
rm -rf "$sysroot" "$state"
mkdir -p "$state"/{lists/partial,cache/archives/partial,parts} "$sysroot"
: >"$state/status"
echo "deb [arch=arm64 signed-by=$keys] http://deb.debian.org/debian $suite main" >"$state/sources"
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$state"
    -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o Dir::Etc::sourcelist="$state/sources"
    -o Dir::Etc::sourceparts="$state/parts" -o Dir::Etc::preferencesparts="$state/parts" -o APT::Sandbox::User=
    -o Debug::NoLocking=1)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends --download-only coreutils libc6-dev libibverbs-dev librdmacm-dev perftest
for package in "$state"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$sysroot"
done
rm -rf "$state"
touch "$sysroot/unpacked-$suite"
