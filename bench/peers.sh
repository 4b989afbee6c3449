#!/usr/bin/env bash
# Measures unmodified applications on irnic beside what else their users could run on the same two cores: perftest on irnic over
# shared memory and over UDP, `irnic perf` itself, the raw ring and the raw UDP loop, UCX (tcp, posix with CMA) and libfabric
# (tcp;ofi_rxm, udp;ofi_rxd). All in turn, ROUNDS times (5), a second each. Prints the best and the median of each row, and the
# median of its ratios to its peer's figure of the same round, beside the ratio aimed at. How long a cache line takes between the two
# cores is measured before and after each row: near is up to 1.6 times the least of all, far is more. Figures are listed by state,
# compared only within one, and left out if it changed meanwhile. Needs Debian's perftest, ucx-utils, libfabric-bin, gcc and
# libibverbs-dev.
#
#   bench/peers.sh [--rows REGEX] [FILE]      the tables go to FILE as well
#
#   ROUNDS=15 bench/peers.sh --rows '64 KiB.*udp' udp.md
set -euo pipefail
cd "$(dirname "$0")/.."
rows=. file=/dev/null
while [ $# -gt 0 ]; do
    case $1 in
    --rows) rows=${2:?--rows wants a regular expression} && shift 2 ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" && exit ;;
    -*) echo "$0: unknown option $1; try --help" >&2 && exit 2 ;;
    *) file=$1 && shift ;;
    esac
done
rounds=${ROUNDS:-5}
for tool in ib_write_bw ucx_perftest fi_pingpong gcc; do
    command -v "$tool" >/dev/null || { echo "no $tool: apt-get install perftest ucx-utils libfabric-bin gcc libibverbs-dev" >&2; exit 1; }
done
cargo build --release --quiet
irnic=target/release/irnic
dir=$(mktemp -d) data=$dir/data
trap 'rm -rf "$dir"; kill $(jobs -p) 2>/dev/null || true' EXIT
gcc -O2 -o "$dir/threads" bench/threads.c -libverbs -pthread
gcc -O2 -o "$dir/line" bench/line.c -pthread
gcc -O2 -o "$dir/allreduce" bench/applications/allreduce.c -libverbs
port=18600

# What is measured: group, row, peer's row, ratio aimed at, command that prints the figure. Groups say whether more is better.
spec() {
    local bw='64 KiB [MiB/s, more is better]' lat='2 B, half a round trip [us, less is better]' rate='8 B WRITE [M/s, more is better]'
    local nccl='All-reduce of 4 MiB as NCCL makes it, two ranks, chunks of 512 KiB [ms, less is better]'
    local threads='Threads of one process, each with its own CQ and queue pairs, shm [M/s, more is better]'
    row "$bw" 'raw ring' - - raw 'ring, 4096 B' 2
    row "$bw" 'raw UDP loop with segmentation' - - raw 'UDP with segmentation, 4096 B' 2
    row "$bw" 'UDP loop with window and ACKs' - - raw 'UDP with window and ACKs, 4096 B' 2
    row "$bw" 'UCX posix+cma, tag_bw' - - ucx posix,cma,self tag_bw 65536 30000
    row "$bw" 'UCX tcp, tag_bw' - - ucx tcp,self tag_bw 65536 15000
    row "$bw" 'libfabric tcp;ofi_rxm, pingpong' - - fabric 'tcp;ofi_rxm' 65536 3000
    row "$bw" 'libfabric udp;ofi_rxd, pingpong' - - fabric 'udp;ofi_rxd' 65536 1000
    row "$bw" 'ib_write_bw, udp' 'UDP loop with window and ACKs' 0.9 perftest udp ib_write_bw 65536 4
    row "$bw" 'ib_write_bw, udp' 'UCX tcp, tag_bw' 1.3 perftest udp ib_write_bw 65536 4
    row "$bw" 'ib_read_bw, udp' 'UDP loop with window and ACKs' 0.85 perftest udp ib_read_bw 65536 4
    row "$bw" 'ib_send_bw, udp' 'UDP loop with window and ACKs' - perftest udp ib_send_bw 65536 4
    row "$bw" 'irnic perf write-bw, udp' 'UDP loop with window and ACKs' 0.9 own udp write-bw 65536 4
    row "$bw" 'ib_write_bw, shm' 'UCX posix+cma, tag_bw' 1.1 perftest shm ib_write_bw 65536 4
    row "$bw" 'ib_read_bw, shm' 'UCX posix+cma, tag_bw' - perftest shm ib_read_bw 65536 4
    row "$bw" 'ib_send_bw, shm' 'UCX posix+cma, tag_bw' - perftest shm ib_send_bw 65536 4
    row "$bw" 'irnic perf write-bw, shm' 'raw ring' - own shm write-bw 65536 4
    row "$lat" 'raw ring' - - raw 'ring, 2 B' 1
    row "$lat" 'raw UDP loop' - - raw 'UDP, 2 B' 1
    row "$lat" "UDP loop with a port's options" - - raw "UDP, 44 B, a port's options" 1
    row "$lat" 'UCX posix, tag_lat' - - ucx posix,self tag_lat 2 50000
    row "$lat" 'UCX tcp, tag_lat' - - ucx tcp,self tag_lat 2 30000
    row "$lat" 'libfabric tcp;ofi_rxm, pingpong' - - fabric 'tcp;ofi_rxm' 2 10000
    row "$lat" 'libfabric udp;ofi_rxd, pingpong' - - fabric 'udp;ofi_rxd' 2 10000
    row "$lat" 'ib_send_lat, udp' "UDP loop with a port's options" 1.5 perftest udp ib_send_lat 2 5
    row "$lat" 'ib_send_lat, udp' 'UCX tcp, tag_lat' 1 perftest udp ib_send_lat 2 5
    row "$lat" 'ib_send_lat, shm' 'UCX posix, tag_lat' 1.5 perftest shm ib_send_lat 2 5
    row "$lat" 'ib_write_lat, udp' "UDP loop with a port's options" - perftest udp ib_write_lat 2 5
    row "$lat" 'ib_write_lat, shm' 'raw ring' - perftest shm ib_write_lat 2 5
    row "$lat" 'irnic perf write-lat, udp' "UDP loop with a port's options" - own udp write-lat 2 5
    row "$lat" 'irnic perf write-lat, shm' 'raw ring' - own shm write-lat 2 5
    row "$rate" 'raw ring' - - raw 'ring, 8 B' 0
    row "$rate" 'irnic perf write-bw, shm' - - own shm write-bw 8 5
    row "$rate" 'ib_write_bw, shm' - - perftest shm ib_write_bw 8 5
    row "$nccl" 'memcpy through a ring' - - allreduce ring
    row "$nccl" 'irnic, shm' 'memcpy through a ring' 1.3 allreduce shm
    row "$nccl" 'ib_write_bw, udp, the 8 MiB' - - written udp
    row "$nccl" 'irnic, udp, an address each' 'ib_write_bw, udp, the 8 MiB' 1.3 allreduce udp
    row "$threads" '1 thread, 8 B' - - threads 1 8
    row "$threads" '2 threads, 8 B' '1 thread, 8 B' 1.8 threads 2 8
    row "$threads" '2 threads, 8 B, queues created by the first thread' '1 thread, 8 B' 1.8 threads 2 8 first
    row "$threads" '4 threads, 8 B' '2 threads, 8 B' 1 threads 4 8
    row "$threads" '1 thread, 64 KiB' - - threads 1 65536
    row "$threads" '2 threads, 64 KiB' '1 thread, 64 KiB' 1.8 threads 2 65536
    row "$threads" '4 threads, 64 KiB' '2 threads, 64 KiB' 1 threads 4 65536
}

# Measures a row, once a round: it may stand beside several peers.
declare -A measured
row() { # group, row, peer's row, ratio aimed at, command...
    local group=$1 name=$2 peer=$3 aim=$4 key="$1|$2"
    shift 4
    [[ "$group $name" =~ $rows || $peer = - ]] || return 0
    if [ -z "${measured[$key]+there}" ]; then
        if [ "$1" = raw ]; then
            measured[$key]="$("$@" || true)|$baseline_lines"
        else
            local before
            before=$("$dir/line")
            measured[$key]="$("$@" || true)|$before|$("$dir/line")"
        fi
    fi
    echo "$round|$group|$name|$peer|$aim|${measured[$key]}" >>"$data"
}

raw() { # row of `irnic perf --baseline`, column from the right
    echo "$baseline" | grep -F " $1" | head -n 1 | awk -v n="$2" '{print $(NF - n)}'
}

# Server on core 0, client on core 1.
perftest() { # carrier, tool, size, column
    local carrier=$1 tool=$2 size=$3 column=$4 server=127.0.0.1 client=127.0.0.1 length='-D 1'
    [ "$carrier" = udp ] && server=127.0.0.2 client=127.0.0.3
    [[ $tool = *_lat ]] && length='-n 20000'
    port=$((port + 1))
    # shellcheck disable=SC2086 # two words
    taskset -c 0 "$irnic" run --address $server --port "$carrier" -- "$tool" -s "$size" $length -p "$port" -F >/dev/null 2>&1 &
    sleep 0.4
    # shellcheck disable=SC2086
    taskset -c 1 "$irnic" run --address $client --port "$carrier" -- "$tool" -s "$size" $length -p "$port" -F 127.0.0.1 2>/dev/null |
        awk -v c="$column" '/^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+/ { print $c }'
    wait $!
}

own() { # carrier, test, size, column
    local carrier=$1 test=$2 size=$3 column=$4 length='-D 1'
    [[ $test = *-lat ]] && length='-n 50000'
    # shellcheck disable=SC2086 # two words
    taskset -c 0 "$irnic" perf "$test" --server --port "$carrier" -s "$size" --no-verify $length >/dev/null &
    sleep 0.4
    # shellcheck disable=SC2086
    taskset -c 1 "$irnic" perf "$test" localhost --port "$carrier" -s "$size" --no-verify $length |
        awk -v s="$size" -v c="$column" '$1 == s { print $c }'
    wait $!
}

ucx() { # transports, test, size, iterations
    port=$((port + 1))
    UCX_TLS=$1 UCX_NET_DEVICES=lo taskset -c 0 ucx_perftest -p "$port" >/dev/null 2>&1 &
    sleep 0.4
    UCX_TLS=$1 UCX_NET_DEVICES=lo taskset -c 1 ucx_perftest -p "$port" 127.0.0.1 -t "$2" -s "$3" -n "$4" -f 2>/dev/null |
        awk -v bw="${2%%*_bw}" 'END { print bw == "" ? $(NF - 3) : $2 }'
    wait $!
}

fabric() { # provider, size, iterations
    port=$((port + 1))
    taskset -c 0 fi_pingpong -p "$1" -e rdm -S "$2" -I "$3" -B "$port" >/dev/null 2>&1 &
    local server=$!
    sleep 0.4
    timeout 60 taskset -c 1 fi_pingpong -p "$1" -e rdm -S "$2" -I "$3" -P "$port" 127.0.0.1 2>/dev/null |
        awk -v size="$2" 'END { print (size > 2 ? $(NF - 2) / 1.048576 : $(NF - 1)) }'
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
}

allreduce() { # ring, or the carrier
    port=$((port + 2))
    local carrier=$1 ring='' options=(-n 40 -w 5 -k 512K -p "$port")
    [ "$carrier" = ring ] && ring=$(mktemp -p /dev/shm) && options+=(-r "$ring")
    allreduce_rank 0 >/dev/null 2>&1 &
    allreduce_rank 1 2>/dev/null | awk '{ for (i = 1; i < NF; i++) if ($i == "median") print $(i + 1) / 1000 }'
    wait $!
    rm -f ${ring:+"$ring"}
}

allreduce_rank() { # rank; $carrier and $options of its caller
    local on=("$irnic" run --port "$carrier" --address 127.0.0.1 --)
    [ "$carrier" = udp ] && on=("$irnic" run --port udp --address "127.0.0.$((2 + $1))" --)
    [ "$carrier" = ring ] && on=()
    taskset -c "$1" "${on[@]}" "$dir/allreduce" "${options[@]}" "$1" localhost localhost
}

# Each rank sends 4 MiB in an all-reduce.
written() { # carrier
    perftest "$1" ib_write_bw 65536 4 | awk '{ if ($1 > 0) print 8 * 1000 / $1 }'
}

threads() { # how many, size, [first]
    "$irnic" run -- "$dir/threads" "$1" "$2" 1 ${3:+"$3"} 2>/dev/null | awk '{ print $5 }'
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    baseline_lines=$("$dir/line")
    baseline=$("$irnic" perf --baseline 2>/dev/null)
    baseline_lines="$baseline_lines|$("$dir/line")"
    measured=()
    spec
done

awk -F '|' '
    function sorted(key, list, i, j, t, n) {
        n = count[key]
        for (i = 1; i <= n; i++) list[i] = value[key, i]
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return n
    }
    function median(key, list, n) { n = sorted(key, list); return n ? list[int((n + 1) / 2)] : 0 }
    function add(key, x) { value[key, ++count[key]] = x }
    function state_of(ns) { return ns <= 1.6 * least ? "near" : "far" }
    $6 + 0 <= 0 { next }
    {
        row[++rows] = $0
        if (!least || $7 + 0 < least) least = $7 + 0
        if ($8 + 0 < least) least = $8 + 0
    }
    function take(text,    f, state, one, line, peer) {
        split(text, f, "|")
        state = state_of(f[7])
        if (state != state_of(f[8])) { changed++; return }
        one = f[2] "|" f[3] "|" state
        if (!((f[1], one) in figure)) { figure[f[1], one] = f[6] + 0; add(one, f[6] + 0) }
        line = f[2] "|" f[3] "|" f[4] "|" f[5] "|" state
        if (!(line in seen)) { seen[line] = 1; lines[++n] = line }
        peer = f[2] "|" f[4] "|" state
        if (f[4] != "-" && ((f[1], peer) in figure)) add("ratio|" line, f[6] / figure[f[1], peer])
    }
    END {
        for (i = 1; i <= rows; i++) take(row[i])
        printf "A cache line takes %.0f ns between near cores. %d of %d measurements were left out: the cores moved meanwhile.\n", least, changed, rows
        for (i = 1; i <= n; i++) {
            split(lines[i], part, "|")
            if (!(part[1] in known)) { known[part[1]]; groups[++all] = part[1] }
        }
        for (g = 1; g <= all; g++) {
            printf "\n| %s | cores | best | median | of | ratio | aim | rounds |\n|---|---|---|---|---|---|---|---|\n", groups[g]
            for (i = 1; i <= n; i++) {
                split(lines[i], part, "|")
                if (part[1] == groups[g]) print_row(part, "ratio|" lines[i])
            }
        }
    }
    function print_row(part, ratios,    one, m, best, ratio) {
        one = part[1] "|" part[2] "|" part[5]
        m = median(one, list)
        best = part[1] ~ /less is better/ ? list[1] : list[count[one]]
        ratio = part[3] == "-" || !count[ratios] ? "" : sprintf("%.2f", median(ratios, list))
        printf "| %s | %s | %.4g | %.4g | %s | %s | %s | %d |\n", part[2], part[5], best, m, part[3] == "-" ? "" : part[3], ratio, part[4] == "-" ? "" : part[4], count[one]
    }' "$data" | tee "$file"
