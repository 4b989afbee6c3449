#!/usr/bin/env bash
# Measures irnic beside the raw paths, in turn, ROUNDS times (5), and prints medians and the median of the ratios: the numbers
# of docs/performance.md. Absolute values depend on which two cores one gets; the ratios of one round share them.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-5}
cargo build --release --quiet
irnic=target/release/irnic
data=$(mktemp)
trap 'rm -f "$data"' EXIT

# Two processes, a core each: port, test, size, further options. Prints the columns after the iterations.
pair() {
    local port=$1 test=$2 size=$3 server
    shift 3
    taskset -c 0 "$irnic" perf "$test" --server --port "$port" -s "$size" --no-verify "$@" >/dev/null &
    server=$!
    sleep 0.4
    taskset -c 1 "$irnic" perf "$test" localhost --port "$port" -s "$size" --no-verify "$@" | grep "^ $size "
    wait "$server"
}

note() { # what, value, raw
    echo "$1|$2|$3" >>"$data"
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    raw=$("$irnic" perf --baseline 2>/dev/null)
    field() { echo "$raw" | grep -F " $1" | head -n 1 | awk -v n="$2" '{print $(NF - n)}'; }
    copy=$(field 'copy of 64 KiB' 2)
    ring=$(field 'ring, 4096 B' 2)
    udp=$(field 'UDP with segmentation, 4096 B' 2)
    ring_lat=$(field 'ring, 2 B' 1)
    udp_lat=$(field 'UDP, 2 B' 1)
    for transport in irn roce; do
        mem=$("$irnic" perf write-bw -s 65536 -D 1 --no-verify --transport "$transport" | awk '$1 == 65536 {print $4}')
        note "mem write-bw 64 KiB, $transport [MiB/s]" "$mem" "$copy"
    done
    for test in write-bw send-bw read-bw; do
        note "shm $test 64 KiB [MiB/s]" "$(pair shm "$test" 65536 -D 1 | awk '{print $4}')" "$ring"
        note "udp $test 64 KiB [MiB/s]" "$(pair udp "$test" 65536 -D 1 | awk '{print $4}')" "$udp"
    done
    note "shm write-bw 8 B [M messages/s]" "$(pair shm write-bw 8 -D 1 | awk '{print $5}')" 3.24
    note "shm write-lat 2 B [us]" "$(pair shm write-lat 2 -n 100000 | awk '{print $5}')" "$ring_lat"
    note "udp write-lat 2 B [us]" "$(pair udp write-lat 2 -n 50000 | awk '{print $5}')" "$udp_lat"
done

echo "| | irnic | raw | ratio |"
echo "|---|---|---|---|"
sort -t '|' -k 1,1 -s "$data" | awk -F '|' '
    function median(list, n, i, j, t) {
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return list[int((n + 1) / 2)]
    }
    function show() { if (n) printf "| %s | %.4g | %.4g | %.2f |\n", what, median(a, n), median(b, n), median(r, n) }
    $1 != what { show(); n = 0; what = $1 }
    { n++; a[n] = $2 + 0; b[n] = $3 + 0; r[n] = $2 / $3 }
    END { show() }'
