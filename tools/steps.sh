# shellcheck shell=bash
# Sourced by test.sh and applications.sh: runs a step, and runs again what fails in tests of `irnic` and `irnic-verbs`. Those
# run programs beside each other, which spin, wait and give up by the clock, on a machine that may be busy. What fails there
# is run once more by itself, and said to be: AGAIN.

# Runs a command, shows what it prints, and appends that to two files, which may be one. Through files, not pipes: a process
# that a test leaves behind would keep a pipe open for ever.
show() { # OUT ERR COMMAND...
    local out=$1 err=$2 pid status from_out from_err
    shift 2
    from_out=$(($(wc -c <"$out") + 1))
    from_err=$(($(wc -c <"$err") + 1))
    "$@" >>"$out" 2>>"$err" &
    pid=$!
    # What runs in the background does not hear of Ctrl-C.
    trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
    tail -s 0.2 -c "+$from_out" -f --pid="$pid" "$out" &
    [ "$err" = "$out" ] || tail -s 0.2 -c "+$from_err" -f --pid="$pid" "$err" >&2 &
    wait "$pid"
    status=$?
    wait
    trap - INT TERM
    return "$status"
}

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

killed_targets() { # LOG LINE: those of them that a signal has ended, whose tests thus have no results
    tail -n "+$(($2 + 1))" "$1" | awk -F'`' '/to rerun pass `/ { target = $2 } /\(signal: / { print target }' | sort -u
}

# Runs again, each by itself, the tests with these names and the targets that were killed, one a line. `passed_again` counts
# what passes. Fails if anything does, or if something else than tests of programs had failed.
run_again() { # LOG TARGETS KILLED NAMES ARGUMENTS...
    local log=$1 targets=$2 killed=$3 names=$4 target name words passed status=0
    shift 4
    passed_again=0
    [ -n "$names$killed" ] && ! grep -Ev '^-p irnic(-verbs)? ' <<<"$targets" >&2 || return 1
    while IFS= read -r target; do
        [ -n "$target" ] || continue
        printf 'AGAIN %s\n' "$target" | tee -a "$log"
        read -ra words <<<"$target"
        if cargo test "$@" "${words[@]}" >"$log.again" 2>&1; then
            passed_again=$((passed_again + 1))
        else
            cat "$log.again"
            status=1
        fi
    done <<<"$killed"
    while IFS= read -r name; do
        [ -n "$name" ] || continue
        printf 'AGAIN %s\n' "$name" | tee -a "$log"
        passed=false
        while IFS= read -r target; do
            read -ra words <<<"$target"
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
