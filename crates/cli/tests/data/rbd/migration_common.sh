# What the scripts about migrations as tasks share.

# Adds a task about a migration, and waits until none is left: migrate WHAT IMAGE
migrate() {
    ceph rbd task add migration "$1" "$2" >/dev/null
    idle
}

# How far a migration is.
state_of() { rbd status --format json "$1" | value 'v["migration"]["state"]'; }

# An image with snapshots, of which each has objects that the others have not, and parts of objects that differ: history IMAGE
# The files SIZES are what it was at snapshot s1, s2 and is now.
history() {
    local name=${1##*/}
    rbd create --size 30M "$1"
    rm -f now
    truncate -s 30M now
    write() { put "$1" "$2" "$3"; put_file now "$2" "$3"; }
    write "$1" 0 first
    write "$1" 9000000 'only the oldest is new here'
    write "$1" 21000000 'this will be discarded'
    rbd snap create --no-progress "$1"@s1
    cp now "$name.s1"
    write "$1" 3 second
    write "$1" 5242879 'across two objects'
    discard "$1" 20971520 4194304
    fill now 20971520 4194304
    rbd snap create --no-progress "$1"@s2
    cp now "$name.s2"
    write "$1" 1000000 third
    write "$1" 25500000 'new at last'
    cp now "$name.now"
}

# Zeros in a file: fill FILE OFFSET LENGTH
fill() { dd if=/dev/zero of="$1" bs=1M seek=$(($2 >> 20)) count=$(($3 >> 20)) conv=notrunc status=none; }

# Gives up a part of an image: discard IMAGE OFFSET LENGTH
discard() {
    /usr/bin/python3 - "$@" <<'PY'
import os, sys, rados, rbd
pool, name = sys.argv[1].split('/')
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx(pool) as io, rbd.Image(io, name) as image:
    image.discard(int(sys.argv[2]), int(sys.argv[3]))
PY
}

# An image and its snapshots are what `history NAME` made: unchanged IMAGE NAME
unchanged() {
    same "$1@s1" "$2.s1"
    same "$1@s2" "$2.s2"
    same "$1" "$2.now"
}

# The object maps of an image and its snapshots are right: mapped IMAGE SNAPSHOT...
mapped() {
    local image=$1 part
    shift
    for part in "$image" "${@/#/$image@}"; do
        rbd object-map check --no-progress "$part" >checked 2>&1
        if rbd info "$part" | grep invalid >/dev/null; then
            echo "the object map of $part is wrong: $(cat checked)" >&2
            return 1
        fi
    done
}

# Nothing is left of an image in a pool: gone POOL ID
gone() {
    if rados -p "$1" ls --all | grep -F "$2"; then return 1; fi
    test -z "$(rbd trash ls --all "$1")"
}
