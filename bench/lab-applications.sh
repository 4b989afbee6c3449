#!/usr/bin/env bash
# Measures how long applications take in `irnic lab`, by the lab's clock, with each transport: on networks that lose frames, and
# on one whose buffers overflow. Every byte that an application moves is checked. Prints a table of medians and ranges, and how
# many times longer that is than the first transport takes without losses.
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
# [6291456]. WHEELS: a folder for programs of PyPI [in cargo's target]. Needs Debian's openmpi-bin, libopenmpi-dev, libibverbs-dev, tgt,
# libiscsi-dev, gcc and python3 (3.11, x86-64), and from PyPI the wheel of Mooncake's Transfer Engine, which it fetches. Status: 1 if
# an application failed or frames were late, 2 for bad arguments.

# Jobs are scripts, which functions with the names of applications make.
# shellcheck disable=SC2016,SC2317
set -euo pipefail
self=$(realpath "$0")
for name in IRNIC WHEELS; do [ -z "${!name:-}" ] || printf -v "$name" %s "$(realpath -m "${!name}")"; done
cd "$(dirname "$0")/.."
wheel='mooncake-transfer-engine-non-cuda==0.3.13.post1'
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

applications=(allreduce alltoall cache disk)
transports=(roce 'roce with PFC' irn 'irn with dcqcn')
networks=('no loss' '0.1 % loss' '1 % loss' 'short buffers')

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
    'no loss') printf '%s\n' --topology "$spec" ;;
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
    'roce with PFC, '*' % loss') printf '%s\n' --clock elastic=2 ;;
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
                [[ "$application|$transport|$network" =~ $only ]] && echo "$application|$transport|$network"
            done
        done
    done
    true
}
cells=$(cells)
[ -n "$cells" ] || { echo "$0: --only $only: there is no such cell; --list names them" >&2; exit 2; }
"$list" && echo "$cells" && exit

needs() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null || { echo "$0: no $1: apt-get install $2" >&2; exit 1; }
}
python=/usr/bin/python3
dir=$(mktemp -d)
csv=${csv:-$dir/runs}
trap 'rm -rf "$dir"' EXIT
if [ -z "${IRNIC:-}" ]; then
    cargo build --release --quiet
    IRNIC=$(realpath "${CARGO_TARGET_DIR:-target}/release/irnic")
fi
sources=$PWD/bench/applications
if grep -q '^allreduce' <<<"$cells"; then
    needs gcc gcc
    gcc -O2 -o "$dir/allreduce" "$sources/allreduce.c" -libverbs
fi
if grep -q '^alltoall' <<<"$cells"; then
    needs mpicc.openmpi libopenmpi-dev
    needs mpirun.openmpi openmpi-bin
    mpicc.openmpi -O2 -o "$dir/alltoall" "$sources/alltoall.c"
fi
if grep -q '^disk' <<<"$cells"; then
    needs gcc gcc
    needs tgtd tgt
    gcc -O2 -o "$dir/disk" "$sources/disk.c" -liscsi
fi
if grep -q '^cache' <<<"$cells"; then
    needs "$python" python3
    # Where the tests have it.
    mooncake=$(realpath -m "${WHEELS:-${CARGO_TARGET_DIR:-target}/tmp/wheels}/$wheel")
    if [ ! -d "$mooncake" ]; then
        "$python" -m pip --version >/dev/null 2>&1 && pip="$python -m pip" || pip='python3 -m pip'
        $pip download --quiet --no-deps --only-binary=:all: --python-version=3.11 --platform=manylinux_2_28_x86_64 --retries=1 \
            --dest "$dir/wheel" "$wheel"
        "$python" -m zipfile -e "$dir"/wheel/*.whl "$dir/unpacked"
        mkdir -p "${mooncake%/*}"
        cp -r "$dir/unpacked" "$mooncake"
    fi
fi

# Jobs: commands of a lab, in a folder of their own. Each prints `ns BEGAN ENDED` for each rank that measures, or client.

# Of one host of the other leaf, or, where buffers are short, of all three others at once.
clients() { # NETWORK
    if [ "$1" = 'short buffers' ]; then echo 1 2 3; else echo 2; fi
}

allreduce() {
    # Each rank's next is behind the other switch.
    cat <<END
rank=0
for host in 0 2 1 3; do
    IRNIC_LAB_HOST=\$host "$IRNIC" run -- "$dir/allreduce" -s $bytes -k 128K -n 1 -w 1 \$rank 127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1 &
    all="\$all \$!" rank=\$((rank + 1))
done
for job in \$all; do wait \$job || { kill \$all; exit 1; }; done
END
}

alltoall() {
    # Open MPI refuses to be run by root unless told twice. A session that ends removes the folder in which another one begins,
    # unless each has its own. UCX gives up on a peer that is silent for 30 s of this machine's time. It takes a connection request
    # of its peer for the answer to its own, and uses the memory of that again, which the NIC may not have read: not if requests
    # are inline.
    cat <<END
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_tmpdir_base=\$PWD
export UCX_UD_VERBS_TIMEOUT=300s UCX_KEEPALIVE_INTERVAL=inf UCX_UD_VERBS_TX_MIN_INLINE=128
exec mpirun.openmpi --oversubscribe -n 4 --mca pml ucx -x UCX_TLS=rc_v,self \
    "$IRNIC" run --sysfs -- "$dir/alltoall" 262144 $((bytes / 786432))
END
}

cache() { # NETWORK
    local hosts number=0 host
    read -ra hosts <<<"$(clients "$1")"
    local sizes="${#hosts[@]} $((bytes / ${#hosts[@]}))"
    # Workers spin, two for each device unless told otherwise. A batch is given up after 30 s of this machine's time otherwise.
    cat <<END
export PYTHONPATH='$mooncake:$PWD/bench/clients' MC_WORKERS_PER_CTX=1 MC_TRANSFER_TIMEOUT=280
cache() { IRNIC_LAB_HOST=\$1 exec "$IRNIC" run --sysfs -- $python "$sources/cache.py" \$2; }
cache 0 'target . $sizes' & all=\$!
END
    for host in "${hosts[@]}"; do
        echo "cache $host 'client . $number $sizes' & all=\"\$all \$!\""
        number=$((number + 1))
    done
    echo 'for job in $all; do wait $job || { kill $all; exit 1; }; done'
}

disk() { # NETWORK
    local hosts number=0 host name=iqn.2026-11.org.irnic
    read -ra hosts <<<"$(clients "$1")"
    local sizes="${#hosts[@]} $((bytes / ${#hosts[@]}))"
    cat <<END
export TGT_IPC_SOCKET=\$PWD/tgt
truncate -s $bytes image
IRNIC_LAB_HOST=0 tgtd --foreground --control-port 77 --iser port=3260,pool_sz_mb=32 & target=\$!
trap 'kill -9 \$target' EXIT
until [ -e tgt.77 ]; do kill -0 \$target || exit 1; sleep 0.02; done
administer() { tgtadm --control-port 77 --lld iser --mode "\$@"; }
administer target --op new --tid 1 --targetname $name:disk
administer logicalunit --op new --tid 1 --lun 1 --backing-store "\$PWD/image"
administer target --op bind --tid 1 --initiator-address ALL
administer target --op bind --tid 1 --initiator-name $name:initiator
connected() { # COMMAND...: again while the target does not listen
    for try in {1..100}; do
        "\$@"
        status=\$?
        [ \$status -eq 3 ] || return \$status
        sleep 0.1
    done
    return 3
}
END
    for host in "${hosts[@]}"; do
        echo "IRNIC_LAB_HOST=$host connected '$dir/disk' . $number $sizes iser://127.77.0.1:3260/$name:disk/1 $name:initiator & all=\"\$all \$!\""
        number=$((number + 1))
    done
    echo 'for job in $all; do wait $job || { kill $all; exit 1; }; done'
}

figure() { # NAME: of the lab's JSON
    sed -n "s/^  \"$1\": \([0-9]*\),\{0,1\}$/\1/p" "$dir/job/lab.json"
}

run() { # APPLICATION TRANSPORT NETWORK ROUND
    local application=$1 transport=$2 network=$3 round=$4 lab ns row=
    mapfile -t lab < <(options "$transport" && topology "$network" && clock "$transport" "$network")
    rm -rf "$dir/job"
    mkdir "$dir/job"
    "$application" "$network" >"$dir/job/job.sh"
    if (cd "$dir/job" && exec timeout 300 "$IRNIC" lab "${lab[@]}" --seed "$round" --json lab.json -- bash job.sh) \
        </dev/null >"$dir/job/output" 2>"$dir/job/errors"; then
        ns=$(awk '$1 == "ns" { if (!n++ || $2 < began) began = $2; if ($3 > ended) ended = $3 }
            END { printf "%d", ended - began }' "$dir/job/output")
        for name in late_frames frames dropped lost marked pauses lab_ns host_ns; do row+=,$(figure "$name"); done
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
