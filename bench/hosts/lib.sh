# Hosts as network namespaces on this machine, and a cluster on them made by hand as docs/several-hosts.md says.
# To be sourced by bash; needs root, iproute2 and Debian's ceph-common and ceph-base.
#
# Each host has a network, a name, /etc/ceph, /var/lib/ceph and /run/ceph of its own; eth0 is on the public network, eth1 on
# the cluster network. All of them hang on two bridges in one more namespace, so nothing of this shows on the machine itself.
#
#   LAB      prefix of the namespaces' names, unique on the machine
#   ROOT     directory of the hosts' files
#   SPIRULA  the binary

PUBLIC=10.77.0
CLUSTER=10.88.0

# Whether this machine can do it; says why not.
lab_possible() {
    [ "$(id -u)" = 0 ] || { echo "not root"; return 1; }
    local tool
    for tool in ip tc unshare mount ceph rados ceph-authtool monmaptool; do
        command -v "$tool" > /dev/null || { echo "$tool is missing"; return 1; }
    done
    ip netns add "${LAB}try" 2> /dev/null || { echo "no network namespaces"; return 1; }
    local made=0
    ip -n "${LAB}try" link add v0 type veth peer name v1 2> /dev/null &&
        ip -n "${LAB}try" link add b0 type bridge 2> /dev/null || made=1
    ip netns exec "${LAB}try" unshare --uts true 2> /dev/null || made=1
    ip netns del "${LAB}try"
    [ $made = 0 ] || { echo "no veth, bridge or mounts in namespaces"; return 1; }
}

# Makes N hosts: 1 to N.
lab_up() {
    local n
    ip netns add "${LAB}sw"
    for n in public cluster; do
        ip -n "${LAB}sw" link add $n type bridge
        ip -n "${LAB}sw" link set $n up
    done
    for n in $(seq "$1"); do
        ip netns add "$LAB$n"
        ip -n "$LAB$n" link set lo up
        plug "$n" eth0 public "$PUBLIC.$n"
        plug "$n" eth1 cluster "$CLUSTER.$n"
        mkdir -p "$ROOT/node$n"/{etc,lib/{mon,osd,bootstrap-osd},run,log}
    done
}

plug() { # host interface bridge address
    ip -n "$LAB$1" link add "$2" type veth peer name "$3$1" netns "${LAB}sw"
    ip -n "${LAB}sw" link set "$3$1" master "$3" up
    ip -n "$LAB$1" addr add "$4/24" dev "$2"
    ip -n "$LAB$1" link set "$2" up
}

# Takes everything away. Daemons must have been stopped.
lab_down() {
    local ns
    for ns in $(ip netns list | awk '{ print $1 }' | grep "^$LAB\(sw\|[0-9]*\)$"); do
        ip netns del "$ns"
    done
}

# Becomes a command on a host, in the control group CGROUP where that is set: on N COMMAND…
on() {
    local n=$1
    shift
    [ -z "${CGROUP:-}" ] || echo $BASHPID > "$CGROUP/cgroup.procs"
    # `ip netns exec` gives a mount namespace, too. The command keeps this process's id.
    exec ip netns exec "$LAB$n" unshare --uts bash -c '
        set -e
        hostname "$1"
        mkdir -p /etc/ceph /var/lib/ceph /run/ceph
        mount --bind "$2/etc" /etc/ceph
        mount --bind "$2/lib" /var/lib/ceph
        mount --bind "$2/run" /run/ceph
        shift 2
        unset CEPH_CONF
        exec "$@"' on "node$n" "$ROOT/node$n" "$@"
}

# Runs a command on a host: at N COMMAND…
at() { (on "$@"); }

# Cuts a host's cables, and mends them.
cut_off() { ip -n "${LAB}sw" link set "public$1" down; ip -n "${LAB}sw" link set "cluster$1" down; }
mend() { ip -n "${LAB}sw" link set "public$1" up; ip -n "${LAB}sw" link set "cluster$1" up; }

# Loses what a host sends on an interface, and nothing of what it gets: no packet fits this bucket. And mends that.
lose_sent() { ip netns exec "$LAB$1" tc qdisc replace dev "$2" root tbf rate 8kbit burst 10 limit 10; }
mend_sent() { ip netns exec "$LAB$1" tc qdisc del dev "$2" root; }

# The configuration file, the same on all hosts: write_conf MONITORS [LINES]
write_conf() {
    local n names="" addrs=""
    for n in $(seq "$1"); do
        names+="${names:+,}node$n"
        addrs+="${addrs:+,}$PUBLIC.$n"
    done
    FSID=$(cat /proc/sys/kernel/random/uuid)
    cat > "$ROOT/node1/etc/ceph.conf" << END
[global]
fsid = $FSID
mon_initial_members = $names
mon_host = $addrs
public_network = $PUBLIC.0/24
cluster_network = $CLUSTER.0/24
osd_pool_default_pg_num = 8
# These hosts share one disk.
mon_data_avail_warn = 2
mon_data_avail_crit = 1
${2:-}

[osd]
osd_log_device = \$osd_data/log
crush_location = root=default rack=rack-\$host host=\$host
END
}

# Keys and the monitor map, on the first host.
make_keys() { # monitors
    local all=(--cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *')
    local admin=/etc/ceph/ceph.client.admin.keyring boot=/var/lib/ceph/bootstrap-osd/ceph.keyring
    local mons=() n
    at 1 ceph-authtool --create-keyring /etc/ceph/mon.keyring --gen-key -n mon. --cap mon 'allow *' > /dev/null
    at 1 ceph-authtool --create-keyring $admin --gen-key -n client.admin "${all[@]}" > /dev/null
    at 1 ceph-authtool --create-keyring $boot --gen-key -n client.bootstrap-osd \
        --cap mon 'profile bootstrap-osd' --cap mgr 'allow r' > /dev/null
    at 1 ceph-authtool /etc/ceph/mon.keyring --import-keyring $admin > /dev/null
    at 1 ceph-authtool /etc/ceph/mon.keyring --import-keyring $boot > /dev/null
    for n in $(seq "$1"); do mons+=(--add "node$n" "$PUBLIC.$n"); done
    at 1 monmaptool --create "${mons[@]}" --fsid "$FSID" /etc/ceph/monmap > /dev/null
}

# Copies what another host needs: share FROM TO FILE…
share() {
    local from=$1 to=$2 file
    shift 2
    for file in "$@"; do cp "$ROOT/node$from/$file" "$ROOT/node$to/$file"; done
}

# Starts a daemon of a host; its process id goes to $ROOT/nodeN/KIND.pid. start N KIND ID
start() {
    local n=$1 kind=$2 id=$3
    on "$n" "$SPIRULA" "$kind" run --id "$id" > /dev/null 2>> "$ROOT/node$n/log/$kind.log" < /dev/null &
    echo $! > "$ROOT/node$n/$kind.pid"
    # The shell shall not tell of its death.
    disown
}

# Kills a host's daemons.
stop() {
    local pid
    for pid in "$ROOT/node$1"/*.pid; do
        [ -e "$pid" ] || continue
        kill "${2:--9}" "$(cat "$pid")" 2> /dev/null || true
    done
}

# A monitor on a host, of a new cluster: add_mon N [ARGUMENTS TO MKFS]
add_mon() {
    local n=$1
    shift
    at "$n" "$SPIRULA" mon mkfs --id "node$n" --keyring /etc/ceph/mon.keyring "$@"
    start "$n" mon "node$n"
}

# An OSD on a host, with a store of this size, by the bootstrap key. Prints its number.
make_osd() {
    at "$1" bash -euo pipefail -c '
        boot="-n client.bootstrap-osd -k /var/lib/ceph/bootstrap-osd/ceph.keyring"
        uuid=$(cat /proc/sys/kernel/random/uuid)
        secret=$(ceph-authtool --gen-print-key)
        id=$(echo "{\"cephx_secret\": \"$secret\"}" | timeout 60 ceph osd new "$uuid" -i - $boot)
        mkdir "/var/lib/ceph/osd/ceph-$id"
        ceph-authtool --create-keyring "/var/lib/ceph/osd/ceph-$id/keyring" --name "osd.$id" --add-key "$secret" > /dev/null
        "$2" osd mkfs --id "$id" --osd-uuid "$uuid" --size "$1"
        echo "$id"' make_osd "$2" "$SPIRULA"
}

add_osd() { start "$1" osd "$(make_osd "$1" "$2")"; }

# Waits until a command prints this. wait_for SECONDS WANTED COMMAND…
wait_for() {
    local end=$((SECONDS + $1)) wanted=$2 said
    shift 2
    until said=$("$@" 2>&1) && [[ $said == *$wanted* ]]; do
        if [ $SECONDS -ge $end ]; then
            echo "\`$*\` does not say \`$wanted\` but: $said" >&2
            return 1
        fi
        sleep 0.2
    done
}
