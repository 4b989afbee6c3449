#!/usr/bin/env bash
# Makes the book, docs/ as HTML, in target/book/html. If mdbook is not in target/book, it is installed there, in two minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.5.4
place="${CARGO_TARGET_DIR:-target}/book"
mkdir -p "$place"
place=$(cd "$place" && pwd)
if [ "$("$place/bin/mdbook" --version 2>/dev/null)" != "mdbook v$version" ]; then
    cargo install --locked --root "$place" --no-default-features --features search "mdbook@$version"
fi

# Files outside docs/ are not in the book: links to them lead to the repository.
url=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)/blob/main
rm -rf "$place/docs"
cp -r docs "$place/docs"
cp book.toml "$place/"
# What tests do with a block is not the reader's business.
sed -i -E 's/^( *```[a-z,]+) .*/\1/' "$place"/docs/*.md
# mdbook makes index.html of README.md, and leaves links to it as they are.
sed -i "s#](README\.md#](index.md#g" "$place"/docs/*.md
sed -i "s#](\.\./#]($url/#g" "$place"/docs/*.md
"$place/bin/mdbook" build --dest-dir "$place/html" "$place"
echo "$place/html/index.html"
