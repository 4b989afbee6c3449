#!/usr/bin/env bash
# Measures what lost packets cost in real time: an all-reduce with NCCL's traffic, a ping-pong, a stream of WRITEs and large READs,
# between two processes of this host. Each cell is a transport, a port and a workload; columns are losses. Prints medians, and how many
# times longer that is than the same without loss. With --base, another build of irnic takes its turn in each round.
#
#   bench/loss.sh [--rounds N] [--only REGEX] [--base IRNIC] [--csv FILE] [--list]
#
#   --rounds N      runs of each cell and loss [5]
#   --only REGEX    cells, named TRANSPORT|PORT|WORKLOAD, that match
#   --base IRNIC    the program of another build, beside this one
#   --csv FILE      a line for each run
#   --list          name the cells and run nothing
#
#   bench/loss.sh --rounds 8 --only '^irn[|]udp[|]allreduce'
#
# PORT is shm, udp (both ends at one address), own (each at its own), lab (a switch between them, times by the lab's clock), or wire
# (two network namespaces; needs root), where TRANSPORT tcp is the kernel's, on the same wire.
# IRNIC: the program [cargo builds it]. LOSSES: in percent [0 0.1 1 5]. SETTINGS: further options of irnic run. Needs Debian's
# perftest, libibverbs-dev and gcc. Status: 1 if a run failed, 2 for bad arguments.
set -euo pipefail
self=$(realpath "$0")
[ -z "${IRNIC:-}" ] || IRNIC=$(realpath "$IRNIC")
rounds=5 only=. base='' csv='' list=false
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=${2:?--rounds wants a number} && shift 2 ;;
    --only) only=${2:?--only wants a regular expression} && shift 2 ;;
    --base) base=$(realpath "${2:?--base wants a program}") && shift 2 ;;
    --csv) csv=$(realpath -m "${2:?--csv wants a file}") && shift 2 ;;
    --list) list=true && shift ;;
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$self" | sed '/^set /d' && exit ;;
    *) echo "$0: unknown argument $1; try --help" >&2 && exit 2 ;;
    esac
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "$0: --rounds $rounds: expected a number from 1 on" >&2; exit 2; }
cd "$(dirname "$self")/.."
read -ra losses <<<"${LOSSES:-0 0.1 1 5}"
read -ra settings <<<"${SETTINGS:-}"

cells=$(for transport in irn auto roce tcp; do
    for port in shm udp own lab wire; do
        for workload in 'allreduce 128K' 'allreduce 512K' 'ping-pong 64 B' 'stream 64 KiB' 'READ 1 MiB'; do
            # perftest measures by this machine's clock.
            [[ $port = lab && $workload != allreduce* ]] && continue
            [[ $port = wire && $workload != ping-pong* && $workload != stream* ]] && continue
            [[ $transport = tcp && $port != wire ]] && continue
            [[ $port = wire && $EUID != 0 ]] && continue
            [[ "$transport|$port|$workload" =~ $only ]] && echo "$transport|$port|$workload"
        done
    done
done || true)
[ -n "$cells" ] || { echo "$0: --only $only: there is no such cell; --list names them" >&2; exit 2; }
"$list" && echo "$cells" && exit

for program in gcc ib_send_lat; do
    command -v "$program" >/dev/null || { echo "$0: no $program: apt-get install gcc libibverbs-dev perftest" >&2; exit 1; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
csv=${csv:-$dir/runs}
if [ -z "${IRNIC:-}" ]; then
    cargo build --release --quiet
    IRNIC=$(realpath "${CARGO_TARGET_DIR:-target}/release/irnic")
fi
gcc -O2 -o "$dir/allreduce" bench/applications/allreduce.c -libverbs
gcc -O2 -o "$dir/wire" bench/applications/wire.c
gcc -O2 -o "$dir/tcp" bench/applications/tcp.c

command_of() { # WORKLOAD END: the program and its arguments, without a host
    case $1 in
    allreduce*) echo "$dir/allreduce -m 1024 -n 8 -w 1 -k ${1#* }" ;;
    ping-pong*) echo 'ib_send_lat -d irnic0 -p 18700 -s 64 -n 5000' ;;
    # perftest's default of 128 messages, each hundredth with a completion, does not outlast a loss.
    stream*) echo 'ib_write_bw -d irnic0 -p 18700 -s 65536 -n 5000 -t 1024 -Q 64' ;;
    READ*) echo 'ib_read_bw -d irnic0 -p 18700 -s 1048576 -n 16 -t 16' ;;
    esac
}

# Figures of a run, smaller is better: the median of an iteration, the 99.9th percentile of half a round trip, or the mean time
# of a message, us.
figure() { # WORKLOAD FILE
    case $1 in
    *tcp) sed -n 's/.* p99.9 //p; s/^mean //p' "$2" ;;
    allreduce*) sed -n 's/^rank 0: .* median \([0-9]*\) us.*/\1/p' "$2" ;;
    ping-pong*) awk '$1 == 64 && NF == 9 { print $9 }' "$2" ;;
    stream*) awk '$1 == 65536 && NF >= 5 { print 65536 / 1.048576 / $4 }' "$2" ;;
    READ*) awk '$1 == 1048576 && NF >= 5 { print 1048576 / 1.048576 / $4 }' "$2" ;;
    esac
}

run() { # IRNIC TRANSPORT PORT WORKLOAD LOSS: prints its figure
    local irnic=$1 transport=$2 port=$3 workload=$4 loss=$5 status=0
    local options=(--mtu 1024 --transport "$transport" "${settings[@]}") here=() there=() command server client host=127.0.0.1
    read -ra command <<<"$(command_of "$workload")"
    rm -f "$dir"/out.*
    if [ "$port" = lab ]; then
        # A frame crosses two links, each of which loses half.
        local each
        each=$(awk "BEGIN { print $loss / 2 }")
        timeout 120 "$irnic" lab --topology "star:hosts=2,rate=10G,delay=2us,loss=$each%" --transport "$transport" -- bash -c "
            IRNIC_LAB_HOST=0 '$irnic' run -- ${command[*]} 0 127.0.0.1 127.0.0.1 & first=\$!
            IRNIC_LAB_HOST=1 '$irnic' run -- ${command[*]} 1 127.0.0.1 127.0.0.1 && wait \$first" >"$dir/out.0" 2>"$dir/err.0" || return 1
        awk '$1 == "ns" { printf "%.0f\n", ($3 - $2) / 8 / 1000; exit }' "$dir/out.0"
        return
    fi
    if [ "$port" = wire ]; then
        command=("$irnic" run "${options[@]}" --port udp --address 10.77.0.@ -- "${command[@]}")
        [ "$transport" = tcp ] && command=("$dir/tcp" "$([[ $workload = ping* ]] && echo latency || echo stream)")
        server="${command[*]}" client="${command[*]} 10.77.0.1 >$dir/out.1"
        timeout 120 "$dir/wire" -l "$loss" -m 1200 -s "$round" "${server/@/1} >$dir/out.0" "${client/@/2}" 2>"$dir/err.0" || return 1
        if [ "$transport" = tcp ]; then figure tcp "$dir/out.1"; else figure "$workload" "$dir/out.1"; fi
        return
    fi
    case $port in
    shm) options+=(--port shm) ;;
    udp) options+=(--port udp) ;;
    own) options+=(--port udp) here=(--address 127.0.0.1) there=(--address 127.0.0.2) ;;
    esac
    [ "$loss" = 0 ] || options+=(--impair "loss $loss%")
    if [[ $workload = allreduce* ]]; then
        server=("${command[@]}" 0 127.0.0.1 127.0.0.1) client=("${command[@]}" 1 127.0.0.1 127.0.0.1)
    else
        server=("${command[@]}") client=("${command[@]}" "$host")
    fi
    timeout 120 "$irnic" run "${options[@]}" "${here[@]}" -- "${server[@]}" >"$dir/out.0" 2>"$dir/err.0" &
    local first=$!
    if [[ $workload != allreduce* ]]; then
        until grep -q : <(ss -Hltn 'sport = :18700' 2>/dev/null); do
            kill -0 "$first" 2>/dev/null || return 1
            sleep 0.02
        done
    fi
    timeout 120 "$irnic" run "${options[@]}" "${there[@]}" -- "${client[@]}" >"$dir/out.1" 2>"$dir/err.1" || status=1
    wait "$first" || status=1
    [ "$status" = 0 ] || return 1
    if [[ $workload = allreduce* ]]; then figure "$workload" "$dir/out.0"; else figure "$workload" "$dir/out.1"; fi
}

failed=0
echo build,transport,port,workload,loss,round,us >"$csv"
builds=("$IRNIC")
[ -z "$base" ] || builds=("$base" "$IRNIC")
for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    while IFS='|' read -r transport port workload <&3; do
        for loss in "${losses[@]}"; do
            for build in "${builds[@]}"; do
                name=new
                [ "$build" = "$IRNIC" ] || name=base
                [[ $name = base && $transport = tcp ]] && continue
                if us=$(run "$build" "$transport" "$port" "$workload" "$loss") && [ -n "$us" ]; then
                    echo "$name,$transport,$port,$workload,$loss,$round,$us" >>"$csv"
                else
                    echo "$name|$transport|$port|$workload at $loss %, round $round: failed" >&2
                    tail -n 5 "$dir"/err.* >&2
                    failed=1
                fi
            done
        done
    done 3<<<"$cells"
done

awk -F, '
    function median(key, list, i, j, t, n) {
        n = count[key]
        for (i = 1; i <= n; i++) list[i] = value[key, i]
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
    }
    NR > 1 {
        row = $4 " | " $3 " | " $2 " | " $1
        if (!(row in seen)) { seen[row] = 1; rows[++n] = row }
        if (!($5 in column)) { column[$5] = 1; columns[++m] = $5 }
        value[row, $5, ++count[row, $5]] = $7
    }
    END {
        printf "| workload, us | port | transport | build |"
        for (k = 1; k <= m; k++) printf " %s %% |", columns[k]
        printf "\n|---|---|---|---|"
        for (k = 1; k <= m; k++) printf "---|"
        for (i = 1; i <= n; i++) {
            printf "\n| %s |", rows[i]
            first = 0
            for (k = 1; k <= m; k++) {
                if (!((rows[i], columns[k]) in count)) { printf " |"; continue }
                middle = median(rows[i] SUBSEP columns[k])
                if (!first) { first = middle; printf " %.4g |", middle } else printf " %.4g, %.3g× |", middle, middle / first
            }
        }
        printf "\n"
    }' "$csv"
exit "$failed"
