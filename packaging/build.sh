#!/usr/bin/env bash
usage='usage: packaging/build.sh deb|tarball|wheel|image...

deb      irnic_VERSION-1_ARCH.deb, for apt install ./irnic_*.deb
tarball  irnic-VERSION-ARCH-linux-gnu.tar.xz, to be unpacked anywhere
wheel    irnic-VERSION-py3-none-PLATFORM.whl, for pip install ./irnic-*.whl
image    irnic and irnic:VERSION, of podman, buildah or docker, and irnic-VERSION-ARCH.oci.tar

They come into target/package. Environment:
PROFILE   profile of cargo (dist: optimised as a whole, three times as long to build as release)
FEATURES  features of irnic (parquet)
BASE      image that the image is made from (docker.io/library/debian:bookworm-slim)'
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
'') echo "$usage" >&2 && exit 2 ;;
-h | --help) echo "$usage" && exit ;;
esac
for kind in "$@"; do
    case $kind in
    deb | tarball | wheel | image) ;;
    *) echo "packaging/build.sh: unknown kind '$kind'; expected deb, tarball, wheel or image" >&2 && exit 2 ;;
    esac
done

profile=${PROFILE:-dist}
features=${FEATURES-parquet}
base=${BASE:-docker.io/library/debian:bookworm-slim}
target=${CARGO_TARGET_DIR:-$PWD/target}
place=$target/package
built=$target/${profile/#dev/debug}
stage=$place/stage
tools=$place/tools
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(uname -m)
# The same sources give the same files, but for what the linker does.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
fi
export SOURCE_DATE_EPOCH

cargo_deb=3.8.0
maturin=1.16.0

stage_files() { # What /usr, a prefix or a wheel's data get, in $stage
    cargo build --quiet --profile "$profile" --no-default-features --features "$features" -p irnic -p irnic-verbs -p irnic-sysfs -p irnic-clock
    rm -rf "$stage"
    mkdir -p "$stage"/bin "$stage"/lib/irnic "$stage"/share/{man/man1,irnic,doc/irnic/examples} \
        "$stage"/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
    strip -o "$stage/bin/irnic" "$built/irnic"
    for library in verbs sysfs clock; do
        strip --strip-unneeded -o "$stage/lib/irnic/libirnic_$library.so" "$built/libirnic_$library.so"
        # By these names AddressSanitizer and the dynamic loader accept them: docs/configuration.md.
        ln -s "libirnic_$library.so" "$stage/lib/irnic/libirnic_$library-precedes-libasan.so"
    done
    ln -s libirnic_verbs.so "$stage/lib/irnic/libibverbs.so.1"
    ln -s libirnic_verbs.so "$stage/lib/irnic/libibverbs.so"
    chmod 644 "$stage"/lib/irnic/libirnic_{verbs,sysfs,clock}.so
    "$stage/bin/irnic" man "$stage/share/man/man1"
    "$stage/bin/irnic" completions bash >"$stage/share/bash-completion/completions/irnic"
    "$stage/bin/irnic" completions zsh >"$stage/share/zsh/vendor-completions/_irnic"
    "$stage/bin/irnic" completions fish >"$stage/share/fish/vendor_completions.d/irnic.fish"
    cp bench/wireshark/irnic.lua "$stage/share/irnic/"
    cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$stage/share/doc/irnic/"
    cp packaging/irnic.toml "$stage/share/doc/irnic/examples/"
    find "$stage" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

build_deb() {
    if [ "$("$tools/bin/cargo-deb" --version 2>/dev/null)" != "$cargo_deb" ]; then
        cargo install --quiet --locked --debug --root "$tools" --target-dir "$tools/target" --version "$cargo_deb" cargo-deb
        rm -rf "$tools/target"
    fi
    gzip -9nf "$stage"/share/man/man1/*.1
    rm -f "$place"/irnic_*.deb
    # The paths of its assets are relative to bench/.
    ln -sfn "$stage" bench/stage
    trap 'rm -f bench/stage' EXIT
    "$tools/bin/cargo-deb" --quiet --no-build --no-strip -p irnic --output "$place/"
    gunzip -f "$stage"/share/man/man1/*.1.gz
    rm -f bench/stage
    ls "$place"/irnic_*.deb
}

build_tarball() {
    local name=irnic-$version-$architecture-linux-gnu
    tar --create --xz --file "$place/$name.tar.xz" --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" --transform "s,^\.,irnic," --directory "$stage" .
    echo "$place/$name.tar.xz"
}

build_wheel() {
    if ! "$tools/python/bin/maturin" --version 2>/dev/null | grep -qx "maturin $maturin"; then
        python3 -m venv "$tools/python"
        "$tools/python/bin/pip" install --quiet --disable-pip-version-check "maturin==$maturin"
    fi
    rm -rf "$place/wheel" "$place"/irnic-*.whl
    mkdir -p "$place/wheel/data/data"
    sed "s,@BENCH@,$PWD/bench," packaging/pyproject.toml >"$place/wheel/pyproject.toml"
    cp -rL "$stage/share" "$stage/lib" "$place/wheel/data/data/"
    mkdir "$place/wheel/python"
    cp -rL packaging/python/irnic "$place/wheel/python/"
    rm -rf "$place/wheel/python/irnic/__pycache__"
    # A wheel has no links. irnic makes them when it first runs.
    find "$place/wheel/data" -name '*-precedes-libasan.so' -delete -o -name 'libibverbs.so*' -delete
    (cd "$place/wheel" && CARGO_TARGET_DIR=$target "$tools/python/bin/maturin" build --quiet --locked --strip --out "$place" \
        --profile "$profile" --no-default-features --features "$features")
    ls "$place"/irnic-*.whl
}

build_image() {
    local engine file=$place/irnic-$version-$architecture.oci.tar
    build_deb >/dev/null
    for engine in podman buildah docker; do
        command -v "$engine" >/dev/null && "$engine" info >/dev/null 2>&1 && break
        engine=
    done
    [ -n "$engine" ] || { echo 'packaging/build.sh: image: no podman, buildah or docker answers' >&2 && return 1; }
    rm -rf "$place/image" "$file"
    mkdir -p "$place/image"
    cp "$place"/irnic_*.deb "$place/image/irnic.deb"
    "$engine" build --quiet --build-arg "BASE=$base" --file packaging/Containerfile --tag irnic --tag "irnic:$version" \
        "$place/image"
    case $engine in
    buildah) buildah push --quiet "irnic:$version" "oci-archive:$file:irnic:$version" ;;
    podman) podman save --quiet --format oci-archive --output "$file" "irnic:$version" ;;
    docker) docker save --output "$file" "irnic:$version" ;;
    esac
    echo "$file"
}

mkdir -p "$place"
stage_files
for kind in "$@"; do
    "build_$kind"
done
