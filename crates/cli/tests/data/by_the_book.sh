# Runs the blocks of docs/several-hosts.md as they are there, as an ordinary user with sudo, on hosts that are network namespaces.
# To be sourced after bench/hosts/lib.sh; BOOK is the document, UNITS the directory with the units.

READER=nobody

# The Nth block of code of the document, from 1.
block() {
    awk -v n="$1" '
        /^    / { if (!inside) { inside = 1; at++ } if (at == n) print substr($0, 5); next }
        /^$/ { if (inside) held = 1; next }
        { inside = 0; held = 0 }' "$BOOK"
}

blocks() { awk '/^    / { if (!inside) { inside = 1; n++ } next } /^$/ { next } { inside = 0 } END { print n }' "$BOOK"; }

# Whether this machine can do it; says why not.
book_possible() {
    lab_possible || return 1
    local tool
    for tool in sudo setpriv losetup hostname; do
        command -v "$tool" > /dev/null || { echo "$tool is missing"; return 1; }
    done
    id ceph > /dev/null 2>&1 || { echo "no user ceph"; return 1; }
    mkdir -p "$ROOT"/{up,work}
    unshare --mount mount -t overlay overlay -o "lowerdir=/usr/bin,upperdir=$ROOT/up,workdir=$ROOT/work" /usr/bin 2> /dev/null ||
        { echo "no overlays in namespaces"; return 1; }
}

# In the place of systemd: starts and ends daemons as their units say.
systemctl_stub() {
    cat << 'END'
#!/bin/bash
set -e
verb=$1
shift
[ "${1:-}" != --now ] || shift
case $verb in
enable | disable | restart) ;;
*) exit 0 ;;
esac
for name in "$@"; do
    id=${name#*@}
    unit=/etc/systemd/system/${name%@*}@.service
    [ "$id" != "$name" ] || continue
    option() { sed -n "s/^$1=//p" "$unit"; }
    if [ $verb != enable ]; then
        pid=$(cat "/run/ceph/$name.pid")
        kill "$pid"
        while kill -0 "$pid" 2> /dev/null; do sleep 0.05; done
    fi
    [ $verb != disable ] || continue
    user=$(option User) group=$(option Group) groups=$(option Group)
    [ -z "$(option SupplementaryGroups)" ] || groups+=,$(option SupplementaryGroups)
    install -d -o "$user" -g "$group" -m 770 /run/ceph
    command=$(option ExecStart)
    umask 077
    setpriv --reuid "$user" --regid "$group" --groups "$groups" ${command//%i/$id} \
        > /dev/null 2>> "/var/log/$name.log" < /dev/null &
    echo $! > "/run/ceph/$name.pid"
done
END
}

# A host as the document expects it: Debian with ceph-common, this user, sudo and the copies.
book_host() {
    local n=$1 node=$ROOT/node$1
    mkdir -p "$node"/{bin,binwork,units,sudoers,home,log}
    chmod 750 "$node/lib"
    # As ceph-common leaves it: what is below the user's directory is made by the user.
    rm -rf "$node/lib"/*
    chown ceph:ceph "$node/lib"
    echo "$READER ALL=(ALL:ALL) NOPASSWD: ALL" > "$node/sudoers/reader"
    chmod 440 "$node/sudoers/reader"
    systemctl_stub > "$node/bin/systemctl"
    chmod 755 "$node/bin/systemctl" "$node" "$node/bin"
    cp "$SPIRULA" "$node/home/spirula"
    cp "$UNITS"/* "$node/home/"
    chown -R "$READER" "$node/home"
}

# Becomes a command of the reader on a host: as_reader N COMMAND…
as_reader() {
    local n=$1
    shift
    (on "$n" bash -c '
        set -e
        mount -t overlay overlay -o "lowerdir=/usr/bin,upperdir=$1/bin,workdir=$1/binwork" /usr/bin
        mount --bind "$1/units" /etc/systemd/system
        mount --bind "$1/sudoers" /etc/sudoers.d
        mount --bind "$1/log" /var/log
        cd "$1/home"
        user=$2
        shift 2
        export HOME=$PWD USER=$user
        exec setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups "$@"' as_reader "$ROOT/node$n" "$READER" "$@")
}

# Pastes the Nth block on a host; SED changes what the document leaves to its reader.
paste_block() {
    local text
    text=$(block "$2")
    [ -n "$text" ] || { echo "no block $2" >&2; return 1; }
    as_reader "$1" bash -euo pipefail -c "$(sed "${SED:-}" <<< "$text")" 2>&1 | grep -v "unable to resolve host" || [ "${PIPESTATUS[0]}" = 0 ]
}

# A disk of a host, as the system shows it; prints its name.
book_disk() {
    truncate -s 2G "$ROOT/disk$1"
    local device
    device=$(losetup -f --show "$ROOT/disk$1")
    echo "$device" >> "$ROOT/loops"
    chgrp disk "$device"
    chmod 660 "$device"
    echo "$device"
}

# All blocks but the one that builds the binary, on three hosts.
book_run() {
    local n
    [ "$(blocks)" = 7 ] || { echo "the document has $(blocks) blocks, and this knows of 7" >&2; return 1; }
    PUBLIC=10.0.0 CLUSTER=10.1.0
    lab_up 3
    for n in 1 2 3; do
        book_host "$n"
        paste_block "$n" 2
    done
    # These hosts share one disk.
    SED='s/^fsid = .*/&\nmon_data_avail_warn = 2\nmon_data_avail_crit = 1/' paste_block 1 3
    paste_block 1 4
    for n in 2 3; do cp -p "$ROOT/node1/home"/{ceph.conf,*.keyring} "$ROOT/node$n/home/"; done
    for n in 1 2 3; do paste_block "$n" 5; done
    wait_for 20 "quorum 0,1,2" as_reader 1 sudo timeout 5 ceph mon stat
    for n in 1 2 3; do
        paste_block "$n" 6
        SED="s#/dev/sdX#$(book_disk "$n")#" paste_block "$n" 7
    done
    wait_for 40 HEALTH_OK as_reader 1 sudo timeout 5 ceph health detail
}

# Takes the hosts' daemons and disks away.
book_down() {
    local it
    for it in "$ROOT"/node*/run/*.pid; do
        [ ! -e "$it" ] || kill -9 "$(cat "$it")" 2> /dev/null || true
    done
    sleep 0.3
    while read -r it; do losetup -d "$it" || true; done < <(cat "$ROOT/loops" 2> /dev/null)
}
