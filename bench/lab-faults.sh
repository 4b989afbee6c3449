#!/usr/bin/env bash
# What single faults do to the libraries of AI clusters, in a lab of four hosts behind two switches: NCCL's traffic (four ranks), NIXL
# and Mooncake's Transfer Engine (two hosts), with RoCE and PFC, which waits for the application's Local ACK Timeout, and with IRN.
# A fault comes as a transfer begins, between connected queue pairs. Prints a table: how long the transfer took by the lab's clock,
# how many timeouts and packets sent again that cost, or how long it took until the library gave up, and what it said.
#
#   bench/lab-faults.sh [--rounds N] [--only REGEX] [--csv FILE] [--list]
#
#   --rounds N      run each cell N times (1), and take the run of median time
#   --only REGEX    cells, named APPLICATION|TRANSPORT|FAULT, that match
#   --csv FILE      a line for each cell
#   --list          name the cells and run nothing
#
# IRNIC, WHEELS: as for bench/lab-applications.sh. Status: 1 if an application did not start, 2 for bad arguments.
set -euo pipefail
self=$(realpath "$0")
for name in IRNIC WHEELS; do [ -z "${!name:-}" ] || printf -v "$name" %s "$(realpath -m "${!name}")"; done
cd "$(dirname "$0")/.."
only=. csv='' list=false rounds=1
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=${2:?--rounds wants a number} && shift 2 ;;
    --only) only=${2:?--only wants a regular expression} && shift 2 ;;
    --csv) csv=${2:?--csv wants a file} && shift 2 ;;
    --list) list=true && shift ;;
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$self" | sed '/^set /,$d' && exit ;;
    *) echo "$0: unknown argument $1; try --help" >&2 && exit 2 ;;
    esac
done

applications=(allreduce nixl cache)
transports=(roce irn)
faults=('no fault' 'a packet lost' 'a lone packet lost' 'link down' 'priority paused' 'host dead')

options() { # TRANSPORT: the lab's options, a line each
    case $1 in
    roce) printf '%s\n' --transport roce --pfc on ;;
    irn) printf '%s\n' --transport irn ;;
    esac
}

# What the lab is told. From the first rank to the second, or from a client to its server, goes data.
fault() { # APPLICATION FAULT
    local from=2 to=0
    [ "$1" != allreduce ] || { from=0 to=2; }
    case $2 in
    'no fault') echo time ;;
    'a packet lost') echo "drop write from $from to $to nth 20" ;;
    # Nothing follows that would tell the receiver: the sixth is the last that a rank sends.
    'a lone packet lost') echo "drop write from $from to $to nth $([ "$1" = allreduce ] && echo 6 || echo 1)" ;;
    'link down') echo link down h0-s0 for 50ms ;;
    'priority paused') echo "pause 0 host $from for 50ms" ;;
    'host dead') echo kill 0 ;;
    esac
}

cells=$(for application in "${applications[@]}"; do
    for transport in "${transports[@]}"; do
        for fault in "${faults[@]}"; do
            [[ "$application|$transport|$fault" =~ $only ]] && echo "$application|$transport|$fault"
        done
    done
done || true)
# shellcheck source=bench/applications/jobs.sh
. bench/applications/jobs.sh
begin "$cells"

counted() { # NAME: a counter, of all processes
    awk -v key="\"$1\":" '$1 == key { n += $2 } END { printf "%d", n }' "$dir/job/lab.json"
}

# What a library says that gives up.
complaint() {
    sed -n 's/^allreduce: rank .*: //p; s/.*\(NIXL_ERR_[A-Z_]*\).*/\1/p; s/^AssertionError: //p; s/^client [0-9]*: \(a transfer failed\)$/\1/p' \
        "$dir/job/errors" | head -n 1
}

run() { # APPLICATION TRANSPORT FAULT
    local bytes=3145728 shape='' status=0 began ended said lab
    [ "$3" != 'a lone packet lost' ] || { bytes=64 shape='-s 32 -c 1 -q 2'; }
    mapfile -t lab < <(options "$2")
    # For 34 s ranks poll in vain, while IRN's timers expire 100,000 times.
    [ "$1|$3" != 'allreduce|host dead' ] || lab+=(--clock virtual)
    rm -rf "$dir/job"
    mkdir "$dir/job"
    "$1" 'no loss' >"$dir/job/job.sh"
    (cd "$dir/job" && LAB_FAULT=$(fault "$1" "$3") exec timeout 600 "$IRNIC" lab "${lab[@]}" \
        --topology leaf-spine:leaves=2,spines=2,hosts=2,rate=10G,delay=2us --json lab.json -- bash job.sh) \
        </dev/null >"$dir/job/output" 2>"$dir/job/errors" || status=$?
    began=$(sed -n 's/^began //p' "$dir/job/errors")
    if [ -z "$began" ] || [ ! -e "$dir/job/lab.json" ]; then
        echo "$1|$2|$3: failed" >&2
        tail -n 40 "$dir/job/errors" >&2
        return 1
    fi
    ended=$(awk '$1 == "ns" && $3 > ended { ended = $3 } END { printf "%.0f", ended }' "$dir/job/output")
    # The lab's time begins at 1 ms, and ends with its processes.
    [ "$status" = 0 ] || ended=$(($(sed -n 's/^  "lab_ns": \([0-9]*\),*$/\1/p' "$dir/job/lab.json") + 1000000))
    if [ "$status" = 0 ]; then said=; else said=$(complaint); said=${said:-exit status $status}; fi
    echo "\"$1\",\"$2\",\"$3\",$((ended - began)),$(counted local_ack_timeout_err),$(counted retransmitted_pkts),\"$said\""
}

failed=0
echo application,transport,fault,ns,timeouts,again,error >"$csv"
while IFS='|' read -r application transport fault <&3; do
    for ((round = 0; round < rounds; round++)); do
        run "$application" "$transport" "$fault" || touch "$dir/failed"
    done | sort -t, -k4,4n | awk '{ run[NR] = $0 } END { if (NR) print run[int((NR + 1) / 2)] }' >>"$csv"
done 3<<<"$cells"
[ ! -e "$dir/failed" ] || failed=1

awk '
    NR == 1 { next }
    {
        split($0, name, "\"")
        split(name[7], figure, ",")
        cell = figure[2] < 1e9 ? sprintf("%.3g ms", figure[2] / 1e6) : sprintf("%.3g s", figure[2] / 1e9)
        if (name[8] != "") cell = name[8] " after " cell
        if (figure[3] > 0) cell = cell ", timeouts " figure[3]
        if (figure[4] > 0) cell = cell ", sent again " figure[4]
        row = name[2] " | " name[4]
        if (!(row in seen)) { seen[row] = 1; rows[++n] = row }
        if (!(name[6] in column)) { column[name[6]] = 1; columns[++m] = name[6] }
        value[row, name[6]] = cell
    }
    END {
        printf "| | |"
        for (k = 1; k <= m; k++) printf " %s |", columns[k]
        printf "\n|---|---|"
        for (k = 1; k <= m; k++) printf "---|"
        for (i = 1; i <= n; i++) {
            printf "\n| %s |", rows[i]
            for (k = 1; k <= m; k++) printf " %s |", value[rows[i], columns[k]]
        }
        printf "\n"
    }' "$csv"
exit "$failed"
