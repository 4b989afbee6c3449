#!/usr/bin/env bash
# Measures unmodified applications on irnic beside what else their users could run on the same two cores: perftest on irnic over
# shared memory and over UDP, `irnic perf` itself, the raw ring and the raw UDP loop, UCX (tcp, posix) and libfabric (tcp;ofi_rxm,
# udp;ofi_rxd). All in turn, ROUNDS times (5); prints medians. Needs Debian's perftest, ucx-utils and libfabric-bin.
#
#   bench/peers.sh [FILE]      the table goes to FILE as well
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-5}
for tool in ib_write_bw ucx_perftest fi_pingpong; do
    command -v "$tool" >/dev/null || { echo "no $tool: apt-get install perftest ucx-utils libfabric-bin" >&2; exit 1; }
done
cargo build --release --quiet
irnic=target/release/irnic
data=$(mktemp)
trap 'rm -f "$data"; kill $(jobs -p) 2>/dev/null || true' EXIT
port=18600

note() { # group, what, value
    echo "$1|$2|$3" >>"$data"
}

# Server on core 0, client on core 1. perftest: device options of server and client, then tool and its options.
perftest() {
    local carrier=$1 server_address client_address
    shift
    case $carrier in
    shm) server_address=127.0.0.1 client_address=127.0.0.1 ;;
    udp) server_address=127.0.0.2 client_address=127.0.0.3 ;;
    esac
    port=$((port + 1))
    taskset -c 0 "$irnic" run --address "$server_address" --port "$carrier" -- "$@" -p "$port" -F >/dev/null 2>&1 &
    sleep 0.5
    taskset -c 1 "$irnic" run --address "$client_address" --port "$carrier" -- "$@" -p "$port" -F 127.0.0.1 2>/dev/null |
        awk '/^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+/'
    wait
}

own() { # irnic perf: carrier, test, size, options
    local carrier=$1 test=$2 size=$3
    shift 3
    taskset -c 0 "$irnic" perf "$test" --server --port "$carrier" -s "$size" --no-verify "$@" >/dev/null &
    sleep 0.4
    taskset -c 1 "$irnic" perf "$test" localhost --port "$carrier" -s "$size" --no-verify "$@" | grep "^ $size "
    wait
}

ucx() { # transports, test, size, iterations
    port=$((port + 1))
    UCX_TLS=$1 UCX_NET_DEVICES=lo taskset -c 0 ucx_perftest -p "$port" >/dev/null 2>&1 &
    sleep 0.5
    UCX_TLS=$1 UCX_NET_DEVICES=lo taskset -c 1 ucx_perftest -p "$port" 127.0.0.1 -t "$2" -s "$3" -n "$4" -f 2>/dev/null | tail -n 1
    wait
}

fabric() { # provider, size, iterations
    port=$((port + 1))
    taskset -c 0 fi_pingpong -p "$1" -e rdm -S "$2" -I "$3" -B "$port" >/dev/null 2>&1 &
    sleep 0.5
    timeout 60 taskset -c 1 fi_pingpong -p "$1" -e rdm -S "$2" -I "$3" -P "$port" 127.0.0.1 2>/dev/null | tail -n 1 || true
    kill %% 2>/dev/null || true
    wait
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    raw=$("$irnic" perf --baseline 2>/dev/null)
    field() { echo "$raw" | grep -F " $1" | head -n 1 | awk -v n="$2" '{print $(NF - n)}'; }
    note '64 KiB [MiB/s]' 'raw ring' "$(field 'ring, 4096 B' 2)"
    note '64 KiB [MiB/s]' 'raw UDP loop with segmentation' "$(field 'UDP with segmentation, 4096 B' 2)"
    note '2 B, half round trip [us]' 'raw ring' "$(field 'ring, 2 B' 1)"
    note '2 B, half round trip [us]' 'raw UDP loop' "$(field 'UDP, 2 B' 1)"
    for carrier in shm udp; do
        note '64 KiB [MiB/s]' "irnic perf write-bw, $carrier" "$(own $carrier write-bw 65536 -D 1 | awk '{print $4}')"
        for tool in ib_write_bw ib_send_bw ib_read_bw; do
            note '64 KiB [MiB/s]' "$tool on irnic, $carrier" "$(perftest $carrier $tool -s 65536 -D 2 | awk '{print $4}')"
        done
        note '2 B, half round trip [us]' "irnic perf write-lat, $carrier" "$(own $carrier write-lat 2 -n 50000 | awk '{print $5}')"
        for tool in ib_write_lat ib_send_lat; do
            note '2 B, half round trip [us]' "$tool on irnic, $carrier" "$(perftest $carrier $tool -s 2 -n 20000 | awk '{print $5}')"
        done
    done
    for transport in tcp posix; do
        tls=$transport,self
        [ "$transport" = posix ] && tls=posix,cma,self
        note '64 KiB [MiB/s]' "UCX $transport, tag_bw" "$(ucx "$tls" tag_bw 65536 50000 | awk '{print $(NF - 3)}')"
        note '2 B, half round trip [us]' "UCX $transport, tag_lat" "$(ucx "$tls" tag_lat 2 50000 | awk '{print $2}')"
    done
    for provider in 'tcp;ofi_rxm' 'udp;ofi_rxd'; do
        note '64 KiB [MiB/s]' "libfabric $provider, pingpong" "$(fabric "$provider" 65536 5000 | awk '{print $(NF - 2) / 1.048576}')"
        note '2 B, half round trip [us]' "libfabric $provider, pingpong" "$(fabric "$provider" 2 20000 | awk '{print $(NF - 1)}')"
    done
done

sort -t '|' -k 1,1r -k 2,2 -s "$data" | awk -F '|' '
    function median(list, n, i, j, t) {
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return list[int((n + 1) / 2)]
    }
    function show() { if (n) printf "| %s | %.4g | %d |\n", what, median(a, n), n }
    $1 != group { show(); n = 0; group = $1; what = ""; printf "\n| %s | median | rounds |\n|---|---|---|\n", group }
    $2 != what { show(); n = 0; what = $2 }
    $3 + 0 > 0 { n++; a[n] = $3 + 0 }
    END { show() }' | tee "${1:-/dev/null}"
