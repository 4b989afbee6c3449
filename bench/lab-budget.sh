#!/usr/bin/env bash
# Measures what a lab carries on this machine: frames/s and Gbit/s of this machine's time through 1, 3 and 5 switches, by pairs of
# ib_write_bw (64 KiB WRITEs). Each figure is the difference of a long and a short run, so that starting up does not count. All in
# turn, ROUNDS times (5). Prints the best and the median of each row. Needs Debian's perftest.
#
#   bench/lab-budget.sh [--rows REGEX]
#
#   ROUNDS=3 bench/lab-budget.sh --rows '^3 '
set -euo pipefail
cd "$(dirname "$0")/.."
rows=.
while [ $# -gt 0 ]; do
    case $1 in
    --rows) rows=${2:?--rows wants a regular expression} && shift 2 ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" && exit ;;
    *) echo "$0: unknown option $1; try --help" >&2 && exit 2 ;;
    esac
done
rounds=${ROUNDS:-5}
command -v ib_write_bw >/dev/null || { echo "no ib_write_bw: apt-get install perftest" >&2; exit 1; }
cargo build --release --quiet
irnic=$PWD/target/release/irnic
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Switches, delay, MTU, pairs; the topology, and how far the hosts of a pair are apart in it.
cases=(
    '1 1us 1024 1:star:hosts=2,rate=10G:1' '1 2us 1024 1:star:hosts=2,rate=10G:1' '1 20us 1024 1:star:hosts=2,rate=10G:1'
    '3 2us 1024 1:leaf-spine:leaves=2,spines=1,hosts=1,rate=10G:1' '3 20us 1024 1:leaf-spine:leaves=2,spines=1,hosts=1,rate=10G:1'
    '5 2us 1024 1:fat-tree:k=4,rate=10G:8' '5 20us 1024 1:fat-tree:k=4,rate=10G:8'
    '1 20us 4096 1:star:hosts=2,rate=40G:1' '3 20us 4096 1:leaf-spine:leaves=2,spines=1,hosts=1,rate=40G:1'
    '5 20us 4096 1:fat-tree:k=4,rate=40G:8' '1 20us 1024 4:star:hosts=8,rate=10G:4' '5 20us 1024 4:fat-tree:k=4,rate=10G:8'
)

# NAME TOPOLOGY APART MESSAGES: prints frames and bytes of all hosts, and the seconds that the lab took.
run() {
    local delay mtu pairs script=
    read -r _ delay mtu pairs <<<"$1"
    for ((i = 0; i < pairs; i++)); do
        script+="(IRNIC_LAB_HOST=$i ib_write_bw -d irnic0 -p $((19100 + i)) -n $4 >$dir/server &
            for try in \$(seq 1500); do sleep 0.02
            IRNIC_LAB_HOST=$((i + $3)) ib_write_bw -d irnic0 -p $((19100 + i)) -n $4 127.77.0.$((i + 1)) >$dir/client 2>&1 && break
            done; wait) & "
    done
    "$irnic" lab --topology "$2,delay=$delay" --mtu "$mtu" --json "$dir/json" --quiet -- sh -c "$script wait" || return
    python3 - "$dir/json" <<'PYTHON'
import json, sys
lab = json.load(open(sys.argv[1]))
assert lab["late_frames"] == 0, lab["late_frames"]
pairs = lab["pairs"]
print(sum(pair["sent"] for pair in pairs), sum(pair["bytes"] for pair in pairs), lab["host_ns"] / 1e9)
PYTHON
}

for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds" >&2
    for case in "${cases[@]}"; do
        name=${case%%:*} topology=${case#*:}
        apart=${topology##*:} topology=${topology%:*}
        [[ $name =~ $rows ]] || continue
        read -r few less short <<<"$(run "$name" "$topology" "$apart" 1000)"
        read -r many more long <<<"$(run "$name" "$topology" "$apart" 10000)"
        awk -v n="$name" -v f=$((many - few)) -v b=$((more - less)) -v s="$long" -v t="$short" \
            'BEGIN { print n "\t" f / (s - t) "\t" b * 8 / (s - t) }' >>"$dir/data"
    done
done

echo '| switches | delay | MTU | pairs | frames/s: best | median | Gbit/s: best | median |'
echo '|---|---|---|---|---|---|---|---|'
sort -s -t "$(printf '\t')" -k1,1 -k2,2n "$dir/data" | awk -F '\t' '
    function show(  middle, part) {
        middle = int((n + 1) / 2)
        split(what, part, " ")
        printf "| %s | %s | %s | %s | %d | %d | %.2f | %.2f |\n", part[1], part[2], part[3], part[4],
            frames[n], frames[middle], bits[n] / 1e9, bits[middle] / 1e9
    }
    $1 != what { if (n) show(); n = 0; what = $1 }
    { frames[++n] = $2; bits[n] = $3 }
    END { if (n) show() }'
