#!/usr/bin/env bash
# Measures how long applications take in `irnic lab`, by the lab's clock, with each transport: on networks that lose frames, one
# whose buffers overflow, and one whose links fail for a while. Every byte that an application moves is checked, but for UCX's
# perftest. Prints a table of medians and ranges, and how many times longer that is than the first transport takes without losses.
#
#   bench/lab-applications.sh [--rounds N] [--only REGEX] [--csv FILE] [--list] [FILE]
#
#   --rounds N      runs of each cell [5]
#   --only REGEX    cells, named APPLICATION|TRANSPORT|NETWORK, that match
#   --csv FILE      a line for each run
#   --list          name the cells and run nothing
#   FILE            the table goes to FILE as well
#
#   bench/lab-applications.sh --rounds 1 --only '^disk.*(roce|irn)[|]1 %'
#
# IRNIC: the program [cargo builds it]. BYTES: what each rank sends, and what clients write and read in all, a multiple of 3 MiB
# [6291456]. WHEELS: a folder for programs of PyPI [in cargo's target]. TESTS_GLOO: the folder of gloo's benchmark, built with
# -DUSE_IBVERBS=ON. Needs Debian's openmpi-bin, libopenmpi-dev, libibverbs-dev, tgt, libiscsi-dev, gcc, ucx-utils, libfabric-bin (and
# root, or a user namespace) and python3 (3.11, x86-64), and from PyPI Mooncake and NIXL, which it fetches. Status: 1 if an
# application failed or frames were late, 2 for bad arguments.

set -euo pipefail
self=$(realpath "$0")
for name in IRNIC WHEELS TESTS_GLOO; do [ -z "${!name:-}" ] || printf -v "$name" %s "$(realpath -m "${!name}")"; done
cd "$(dirname "$0")/.."
rounds=5 only=. csv='' list=false file=/dev/null
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=${2:?--rounds wants a number} && shift 2 ;;
    --only) only=${2:?--only wants a regular expression} && shift 2 ;;
    --csv) csv=${2:?--csv wants a file} && shift 2 ;;
    --list) list=true && shift ;;
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$self" && exit ;;
    -*) echo "$0: unknown option $1; try --help" >&2 && exit 2 ;;
    *) file=$1 && shift ;;
    esac
done
bytes=${BYTES:-6291456}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "$0: --rounds $rounds: expected a number from 1 on" >&2; exit 2; }
[[ $bytes =~ ^[1-9][0-9]*$ && $((10#$bytes % 3145728)) = 0 ]] || { echo "$0: BYTES=$bytes: expected a multiple of 3145728" >&2; exit 2; }

applications=(allreduce alltoall cache disk nixl store gloo ucx libfabric)
transports=(roce 'roce with PFC' irn 'irn with dcqcn')
networks=('no loss' '0.1 % loss' '1 % loss' 'short buffers' 'link flap')

options() { # TRANSPORT: the lab's options, a line each
    case $1 in
    roce) printf '%s\n' --transport roce ;;
    'roce with PFC') printf '%s\n' --transport roce --pfc on ;;
    irn) printf '%s\n' --transport irn ;;
    'irn with dcqcn') printf '%s\n' --transport irn --cc dcqcn ;;
    esac
}

# Two switches with two hosts each. From one to the other a frame crosses four links, each of which loses a quarter.
topology() { # NETWORK: the lab's options, a line each
    local spec=leaf-spine:leaves=2,spines=2,hosts=2,rate=10G,delay=2us
    case $1 in
    'no loss' | 'link flap') printf '%s\n' --topology "$spec" ;;
    '0.1 % loss') printf '%s\n' --topology "$spec,loss=0.025%" ;;
    '1 % loss') printf '%s\n' --topology "$spec,loss=0.25%" ;;
    # Half as much between the switches as the hosts can send, and a quarter of the room in front of it.
    'short buffers') printf '%s\n' --topology "${spec/spines=2/spines=1}" --buffer 60KB ;;
    esac
}

# Applications compute, and wait for a core, in this machine's time. In a lab so much slower that is next to nothing. With PFC,
# RoCE waits seconds for timers instead, each of which would take as much longer.
clock() { # TRANSPORT NETWORK: the lab's options, a line each
    case "$1, $2" in
    'roce with PFC, '*' % loss' | 'roce with PFC, link flap') printf '%s\n' --clock elastic=2 ;;
    *) printf '%s\n' --clock elastic=30 ;;
    esac
}

cells() {
    local application transport network
    for application in "${applications[@]}"; do
        for transport in "${transports[@]}"; do
            for network in "${networks[@]}"; do
                # Three hosts' go-back-N sends millions of frames, most of which are dropped, beside six threads that spin: it
                # takes longer than anybody waits.
                [ "$application|$transport|$network" = 'cache|roce|short buffers' ] && continue
                # One client does not fill them.
                [[ "$application|$network" =~ ^(nixl|store|ucx|libfabric)[|]short ]] && continue
                [[ "$application|$transport|$network" =~ $only ]] && echo "$application|$transport|$network"
            done
        done
    done
    true
}
cells=$(cells)
# shellcheck source=bench/applications/jobs.sh
. bench/applications/jobs.sh
begin "$cells"

figure() { # NAME: of the lab's JSON
    sed -n "s/^  \"$1\": \([0-9]*\),\{0,1\}$/\1/p" "$dir/job/lab.json"
}

# Takes the links between the first leaf and the spines down for 2 ms, while a tenth of the frames or more have been sent.
flap() {
    local ctl=("$IRNIC" ctl --socket "$dir/job/control") sent=0
    until [ "${sent:-0}" -gt $((bytes / 10240)) ]; do
        sent=$("${ctl[@]}" stats 2>/dev/null | sed -n 's/.*"frames":\([0-9]*\).*/\1/p') || true
        [ -e "$dir/job/ended" ] && return
        sleep 0.01
    done
    for link in s0-s2 s0-s3; do "${ctl[@]}" link down "$link" for 2ms >>"$dir/job/flaps" 2>&1 || true; done
}

run() { # APPLICATION TRANSPORT NETWORK ROUND
    local application=$1 transport=$2 network=$3 round=$4 lab ns row='' status=0 flaps=''
    mapfile -t lab < <(options "$transport" && topology "$network" && clock "$transport" "$network")
    [ "$application" != libfabric ] || lab+=(--netns)
    rm -rf "$dir/job"
    mkdir "$dir/job"
    "$application" "$network" >"$dir/job/job.sh"
    [ "$network" != 'link flap' ] || { flap & flaps=$!; }
    (cd "$dir/job" && exec timeout 300 "$IRNIC" lab "${lab[@]}" --seed "$round" --json lab.json --control control -- bash job.sh) \
        </dev/null >"$dir/job/output" 2>"$dir/job/errors" || status=1
    touch "$dir/job/ended"
    [ -z "$flaps" ] || wait "$flaps"
    if [ "$status" = 0 ]; then
        ns=$(awk '$1 == "ns" { if (!n++ || $2 < began) began = $2; if ($3 > ended) ended = $3 }
            END { printf "%d", ended - began }' "$dir/job/output")
        # Programs that do not ask for the time: while frames were under way.
        [ "$ns" != 0 ] || ns=$(sed -n '/^  "busy"/,/}/s/^    "lab_ns": \([0-9]*\).*/\1/p' "$dir/job/lab.json")
        for name in late_frames frames dropped lost marked pauses lab_ns host_ns; do row+=,$(figure "$name"); done
        # A short transfer may end before the links fail.
        [[ $network = 'link flap' && $(figure lost) = 0 && $((++missed)) -lt 10 ]] && { run "$@"; return; }
        echo "\"$application\",\"$transport\",\"$network\",$round,$ns$row" >>"$csv"
        [ "$(figure late_frames)" = 0 ] && return
        echo "$application|$transport|$network, round $round: frames were late" >&2
    else
        echo "$application|$transport|$network, round $round: failed" >&2
        tail -n 40 "$dir/job/errors" >&2
        echo "\"$application\",\"$transport\",\"$network\",$round,failed,,,,,,,," >>"$csv"
    fi
    failed=1
}

failed=0
echo application,transport,network,round,job_ns,late_frames,frames,dropped,lost,marked,pauses,lab_ns,host_ns >"$csv"
# All cells in turn: what else the machine does falls on each.
for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    while IFS='|' read -r application transport network <&3; do
        missed=0
        run "$application" "$transport" "$network" "$round"
    done 3<<<"$cells"
done

# Names of cells have no quotes in them, and commas.
awk -v rounds="$rounds" '
    function sorted(key, list, i, j, t, n) {
        n = count[key]
        for (i = 1; i <= n; i++) list[i] = value[key, i]
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return n
    }
    function median(key, list, n) { n = sorted(key, list); return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2 }
    NR == 1 { next }
    {
        split($0, name, "\"")
        split(name[7], figure, ",")
        key = name[2] "|" name[4] "|" name[6]
        if (figure[3] == "failed") bad[key]++
        else value[key, ++count[key]] = figure[3] / 1e6
        if (!(name[2] in lines)) { lines[name[2]] = 0; order[++n] = name[2] }
        if (!((name[2], name[4]) in row)) { row[name[2], name[4]] = 1; rows[name[2], ++lines[name[2]]] = name[4] }
        if (!(name[6] in column)) { column[name[6]] = 1; columns[++m] = name[6] }
    }
    END {
        for (i = 1; i <= n; i++) {
            printf "%s| %s: ms, and range of %d runs |", (i > 1 ? "\n" : ""), order[i], rounds
            for (k = 1; k <= m; k++) printf " %s |", columns[k]
            printf "\n|---|"
            for (k = 1; k <= m; k++) printf "---|"
            base = 0
            for (j = 1; j <= lines[order[i]]; j++) {
                printf "\n| %s |", rows[order[i], j]
                for (k = 1; k <= m; k++) {
                    key = order[i] "|" rows[order[i], j] "|" columns[k]
                    if (!(key in count)) { printf " |"; continue }
                    middle = median(key, list)
                    if (!base) base = middle
                    printf " %.3g (%.3g to %.3g), %.3g× |", middle, list[1], list[count[key]], middle / base
                }
            }
            printf "\n"
        }
    }' "$csv" | tee "$file"
exit "$failed"
