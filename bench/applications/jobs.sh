# shellcheck shell=bash
# Jobs for labs of four hosts, two behind each of two switches, that bench/lab-applications.sh and bench/lab-faults.sh run.
# Sourced in the repository's root, with their arguments `only`, `list` and `csv`; IRNIC, WHEELS, TESTS_GLOO: see
# lab-applications.sh. `bytes` is what each rank sends, or all clients write and read; `shape`: more options of allreduce.
#
# `begin CELLS` lists cells, which are named APPLICATION|…, or builds and fetches what they need, below `dir`. A function with an
# application's name prints its script, for a folder of its own; there each rank that measures, or client, prints `ns BEGAN ENDED` by
# the lab's clock, before which the job tells the lab what LAB_FAULT says.

# Jobs are scripts, which functions with the names of applications make.
# shellcheck disable=SC2016,SC2034,SC2154
shopt -s inherit_errexit

needs() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null || { echo "$0: no $1: apt-get install $2" >&2; exit 1; }
}
sources=$PWD/bench/applications
modules=$PWD/bench/clients
# TCP ports of these jobs, eight from here on; others run at the same time.
port=$((10000 + $$ % 2400 * 8))

# Where the tests have them.
wheel() { # REQUIREMENT [for any Python]: unpacks it, and prints where
    local wheels=${WHEELS:-${CARGO_TARGET_DIR:-target}/tmp/wheels} place pip=python3 options=()
    if [ -n "${2:-}" ]; then
        place=$(realpath -m "$wheels/$1")
        options=(--python-version=3.11 --platform=manylinux_2_28_x86_64)
        /usr/bin/python3 -m pip --version >/dev/null 2>&1 && pip=/usr/bin/python3
    else
        place=$(realpath -m "$wheels/$(python3 -c 'import sys; print(sys.implementation.cache_tag)')/$1")
    fi
    if [ ! -d "$place" ]; then
        rm -rf "$dir/wheel" "$dir/unpacked"
        "$pip" -m pip download --quiet --no-deps --only-binary=:all: --retries=1 "${options[@]}" --dest "$dir/wheel" "$1" >&2
        python3 -m zipfile -e "$dir"/wheel/*.whl "$dir/unpacked"
        mkdir -p "${place%/*}"
        cp -r "$dir/unpacked" "$place"
    fi
    echo "$place"
}

prepare() { # APPLICATION
    case $1 in
    allreduce)
        needs gcc gcc
        gcc -O2 -o "$dir/allreduce" "$sources/allreduce.c" -libverbs
        ;;
    alltoall)
        needs mpicc.openmpi libopenmpi-dev
        needs mpirun.openmpi openmpi-bin
        mpicc.openmpi -O2 -o "$dir/alltoall" "$sources/alltoall.c"
        ;;
    disk)
        needs gcc gcc
        needs tgtd tgt
        gcc -O2 -o "$dir/disk" "$sources/disk.c" -liscsi
        ;;
    cache | store)
        needs /usr/bin/python3 python3
        mooncake=$(wheel mooncake-transfer-engine-non-cuda==0.3.13.post1 any)
        chmod +x "$mooncake/mooncake/mooncake_master"
        ;;
    nixl)
        needs python3 python3
        nixl=$(wheel nixl-cu12==1.5.1):$(wheel numpy==2.3.5)
        ;;
    gloo) [ -x "${TESTS_GLOO:-}/benchmark" ] || { echo "$0: TESTS_GLOO names no folder with gloo's benchmark" >&2; exit 1; } ;;
    ucx) needs ucx_perftest ucx-utils ;;
    libfabric) needs fi_pingpong libfabric-bin ;;
    esac
}

begin() { # CELLS
    [ -n "$1" ] || { echo "$0: --only $only: there is no such cell; --list names them" >&2; exit 2; }
    if "$list"; then
        echo "$1"
        exit
    fi
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
    csv=${csv:-$dir/runs}
    if [ -z "${IRNIC:-}" ]; then
        cargo build --release --quiet
        IRNIC=$(realpath "${CARGO_TARGET_DIR:-target}/release/irnic")
    fi
    local used application
    mapfile -t used < <(cut -d '|' -f 1 <<<"$1" | sort -u)
    for application in "${used[@]}"; do prepare "$application"; done
}

# Of one host of the other leaf, or, where buffers are short, of all three others at once.
clients() { # NETWORK
    if [ "$1" = 'short buffers' ]; then echo 1 2 3; else echo 2; fi
}

# The end of a job that has started members: with all others once one has failed, but for those that the lab has killed.
members='for job in $all; do wait $job || { failed=$?; [ $failed = 137 ] || { kill $all; exit 1; }; }; done; exit ${failed:-0}'
# A client's, whose server ends with it.
served='wait $client || { kill -9 $server; exit 1; }; wait $server'

allreduce() {
    # Each rank's next is behind the other switch.
    cat <<END
rank=0
for host in 0 2 1 3; do
    IRNIC_LAB_HOST=\$host "$IRNIC" run -- "$dir/allreduce" -p $port -s $bytes -k 128K -n 1 -w 1 ${shape:-} \$rank 127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1 &
    all="\$all \$!" rank=\$((rank + 1))
done
$members
END
}

# UCX gives up on a peer that is silent for 30 s of this machine's time. It takes a connection request of its peer for the answer to
# its own, and uses the memory of that again, which the NIC may not have read: not if requests are inline.
ucx_settings='UCX_TLS=rc_v,self UCX_UD_VERBS_TIMEOUT=300s UCX_KEEPALIVE_INTERVAL=inf UCX_UD_VERBS_TX_MIN_INLINE=128'

alltoall() {
    # Open MPI refuses to be run by root unless told twice. A session that ends removes the folder in which another one begins,
    # unless each has its own.
    cat <<END
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_tmpdir_base=\$PWD
export $ucx_settings
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
export PYTHONPATH='$mooncake:$modules' MC_WORKERS_PER_CTX=1 MC_TRANSFER_TIMEOUT=280
cache() { IRNIC_LAB_HOST=\$1 exec "$IRNIC" run --sysfs -- /usr/bin/python3 "$sources/cache.py" \$2; }
cache 0 'target . $sizes' & all=\$!
END
    for host in "${hosts[@]}"; do
        echo "cache $host 'client . $number $sizes' & all=\"\$all \$!\""
        number=$((number + 1))
    done
    echo "$members"
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
    echo "$members"
}

nixl() {
    cat <<END
export $ucx_settings PYTHONPATH='$nixl:$modules'
agent() { IRNIC_LAB_HOST=\$1 exec "$IRNIC" run --sysfs -- python3 "$sources/agents.py" \$2 $bytes; }
agent 0 target & server=\$!
agent 2 initiator & client=\$!
$served
END
}

store() {
    cat <<END
export PYTHONPATH='$mooncake:$modules' MC_WORKERS_PER_CTX=1 MC_TRANSFER_TIMEOUT=280
store() { IRNIC_LAB_HOST=\$1 exec "$IRNIC" run --sysfs -- /usr/bin/python3 "$sources/store.py" \$2 . 127.0.0.1:$((port + 4)) $bytes; }
'$mooncake/mooncake/mooncake_master' --rpc_port=$((port + 4)) --metrics_port=$((port + 5)) >master.txt 2>&1 & master=\$!
trap 'kill \$master' EXIT
store 0 keeper & server=\$!
store 2 client & client=\$!
$served
END
}

gloo() {
    cat <<END
mkdir meet
index=\$(IRNIC_LAB_HOST=0 "$IRNIC" run -- ibv_devinfo -v | sed -n 's/.*GID\[ *\([0-9]*\)\].*::ffff:.*/\1/p')
rank() {
    for benchmark in allreduce_ring_chunked broadcast_one_to_all; do
        IRNIC_LAB_HOST=\$1 "$IRNIC" run --sysfs -- '$TESTS_GLOO/benchmark' --size 4 --rank \$1 --prefix \$benchmark --shared-path meet \
            --transport ibverbs --ib-device irnic0 --ib-index \$index --elements $((bytes / 4)) --iteration-count 1 \$benchmark || return
    done
}
for host in 0 1 2 3; do
    rank \$host & all="\$all \$!"
done
$members
END
}

ucx() {
    cat <<END
export $ucx_settings
perftest() { IRNIC_LAB_HOST=\$1 exec "$IRNIC" run --sysfs -- ucx_perftest \$2 -p $((port + 6)) -t ucp_put_bw -w 1 -s 65536 -n $((bytes / 65536)); }
perftest 0 & server=\$!
until grep -q ':$(printf %04X $((port + 6))) .* 0A ' /proc/net/tcp; do kill -0 \$server || exit 1; sleep 0.02; done
perftest 2 127.0.0.1 & client=\$!
$served
END
}

libfabric() {
    # It passes loopback interfaces over, so that hosts have namespaces of their own.
    cat <<END
pingpong() { exec "$IRNIC" host \$1 -- fi_pingpong -p verbs -e msg -c -S 65536 -I $((bytes / 65536)) \$2; }
pingpong 0 & server=\$!
until "$IRNIC" host 0 -- grep -q ':B9E8 .* 0A ' /proc/net/tcp; do kill -0 \$server || exit 1; sleep 0.02; done
pingpong 2 h0 & client=\$!
$served
END
}
