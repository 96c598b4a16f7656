#!/usr/bin/env bash
# Brings up a real Ceph from Debian's packages on loopback: the peer that the benchmark measures against.
# usage: peer_ceph.sh up DIR [N_OSDS] [OSD_SIZE_G] [N_MONS] | down DIR
set -euo pipefail
command=${1:?up or down}
dir=${2:?directory}
export CEPH_CONF=$dir/ceph.conf

up() {
    local osds=${1:-3} size_g=${2:-10} n_mons=${3:-1} fsid ports mons addrs="" names="" m
    if ! command -v ceph-osd >/dev/null; then
        echo "installing Debian's ceph packages" >&2
        apt-get update -q
        DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends ceph ceph-common
    fi
    rm -rf "$dir"
    mkdir -p "$dir/mgr.x" "$dir/run"
    fsid=$(cat /proc/sys/kernel/random/uuid)
    mons=(a b c d e f g)
    mons=("${mons[@]:0:n_mons}")
    mapfile -t ports < <(python3 -c '
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in held:
    s.bind(("127.0.0.1", 0))
    print(s.getsockname()[1])' "$n_mons")
    for ((m = 0; m < n_mons; m++)); do
        addrs+=${addrs:+,}[v2:127.0.0.1:${ports[m]}] names+=${names:+,}${mons[m]}
    done
    cat >"$CEPH_CONF" <<CONF
[global]
fsid = $fsid
mon_host = $addrs
mon_initial_members = $names
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
osd_pool_default_size = 3
osd_pool_default_min_size = 2
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_delete = true
mon_allow_pool_size_one = true
auth_allow_insecure_global_id_reclaim = false
ms_bind_msgr1 = false
run_dir = $dir/run
keyring = $dir/keyring
[mon]
mon_data = $dir/\$name
log_file = $dir/\$name.log
admin_socket = $dir/run/\$name.asok
pid_file = $dir/run/\$name.pid
[mgr]
mgr_data = $dir/\$name
keyring = $dir/\$name/keyring
log_file = $dir/\$name.log
admin_socket = $dir/run/\$name.asok
pid_file = $dir/run/\$name.pid
[osd]
osd_data = $dir/\$name
keyring = $dir/\$name/keyring
log_file = $dir/\$name.log
admin_socket = $dir/run/\$name.asok
pid_file = $dir/run/\$name.pid
osd_objectstore = bluestore
bluestore_block_create = true
bluestore_block_size = $((size_g * 1024 * 1024 * 1024))
CONF
    ceph-authtool --create-keyring "$dir/keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
    ceph-authtool "$dir/keyring" --gen-key -n client.admin \
        --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *' >/dev/null
    monmaptool --create --fsid "$fsid" "$dir/monmap" >/dev/null
    for ((m = 0; m < n_mons; m++)); do
        monmaptool --addv "${mons[m]}" "[v2:127.0.0.1:${ports[m]}]" "$dir/monmap" >/dev/null
    done
    for m in "${mons[@]}"; do
        mkdir -p "$dir/mon.$m"
        ceph-mon --mkfs -i "$m" --monmap "$dir/monmap" --keyring "$dir/keyring"
        ceph-mon -i "$m"
    done
    ceph auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' mds 'allow *' >"$dir/mgr.x/keyring"
    ceph-mgr -i x
    local i uuid key
    for ((i = 0; i < osds; i++)); do
        mkdir -p "$dir/osd.$i"
        uuid=$(cat /proc/sys/kernel/random/uuid)
        key=$(ceph-authtool --gen-print-key)
        echo "{\"cephx_secret\":\"$key\"}" >"$dir/osd.$i/new.json"
        ceph osd new "$uuid" -i "$dir/osd.$i/new.json" >/dev/null
        printf '[osd.%s]\n\tkey = %s\n' "$i" "$key" >"$dir/osd.$i/keyring"
        ceph-osd -i "$i" --mkfs --osd-uuid "$uuid" >/dev/null 2>&1
        ceph-osd -i "$i" >/dev/null 2>&1
    done
    for ((i = 0; i < 60; i++)); do
        ceph osd stat -f json | grep "\"num_up_osds\":$osds" >/dev/null && return
        sleep 1
    done
    echo "the OSDs did not come up" >&2
    return 1
}

down() {
    local pids=() f p t
    for f in "$dir"/run/*.pid; do [ -f "$f" ] && pids+=("$(cat "$f")"); done
    for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
    for ((t = 0; t < 100; t++)); do
        local left=0
        for p in "${pids[@]}"; do kill -0 "$p" 2>/dev/null && left=1; done
        ((left)) || return 0
        sleep 0.1
    done
    for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null || true; done
}

case $command in
up) shift 2 && up "$@" ;;
down) down ;;
*) echo "up or down" >&2 && exit 2 ;;
esac
