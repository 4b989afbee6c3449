# shellcheck shell=bash
# Sourced by test.sh and applications.sh. Tests of `irnic` and `irnic-verbs` run programs beside each other, which spin, wait
# and give up by the clock, on a machine that may be busy. What fails there is run once more by itself, and said to be: AGAIN.

lines_of() { # FILE
    wc -l <"$1"
}

failed_tests() { # LOG LINE: the names of tests that failed in the log after that line
    tail -n "+$(($2 + 1))" "$1" | sed -n 's/^test \(.*[^ ]\) *\.\.\. FAILED$/\1/p' | sort -u
}

# shellcheck disable=SC2016
failed_targets() { # LOG LINE: what cargo says has failed after that line, in its own words: -p irnic --test mpi
    tail -n "+$(($2 + 1))" "$1" | sed -n 's/^ *`\(-p [^`]*\)`$/\1/p' | sort -u
}

run_again() { # LOG TARGETS NAMES ARGUMENTS...: the tests of these names, one a line; `passed_again` counts those that pass
    local log=$1 targets=$2 names=$3 target name words passed status=0
    shift 3
    passed_again=0
    [ -n "$names" ] && ! grep -Ev '^-p irnic(-verbs)? ' <<<"$targets" >&2 || return 1
    while IFS= read -r name; do
        printf 'AGAIN %s\n' "$name" | tee -a "$log"
        passed=false
        while IFS= read -r target; do
            read -ra words <<<"$target"
            # A file: a process that the test leaves behind would hold a pipe.
            cargo test "$@" "${words[@]}" -- --exact "$name" >"$log.again" 2>&1 || { passed=false && break; }
            # Targets without a test of that name pass, too.
            ! grep -q '^test result: ok\. 1 passed' "$log.again" || passed=true
        done <<<"$targets"
        if "$passed"; then
            passed_again=$((passed_again + 1))
        else
            cat "$log.again"
            status=1
        fi
    done <<<"$names"
    return "$status"
}
