#!/usr/bin/env bash
# Lines of comments that are longer than 120 columns, which rustfmt does not wrap. Rows of tables cannot be wrapped.
cd "$(dirname "$0")/.." || exit 1
! git ls-files '*.rs' | LC_ALL=C.UTF-8 xargs grep -nP '^(?=\s*//[/!]?+ *+[^|]).{121,}'
