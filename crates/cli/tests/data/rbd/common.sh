# What the scripts beside this one share. They run against any cluster: `bash -eu common.sh-and-script`.

# Writes a text to an image at an offset: put IMAGE OFFSET TEXT
put() {
    /usr/bin/python3 - "$@" <<'PY'
import os, sys, rados, rbd
pool, name = sys.argv[1].split('/')
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx(pool) as io, rbd.Image(io, name) as image:
    image.write(sys.argv[3].encode(), int(sys.argv[2]))
PY
}

# The same to a file.
put_file() { printf %s "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

# An image, or a snapshot of it, holds what a file does: same IMAGE FILE
same() {
    rm -f exported
    rbd export --no-progress "$1" exported
    cmp exported "$2"
}

# The command fails with this exit code: fails CODE COMMAND...
fails() {
    local want=$1 got=0
    shift
    "$@" >failed 2>&1 || got=$?
    if [ "$got" != "$want" ]; then
        echo "$* exited with $got, not $want: $(cat failed)" >&2
        return 1
    fi
}

# A command prints something: says TEXT COMMAND...
says() {
    local want=$1
    shift
    "$@" >said 2>&1
    if ! grep -qF -- "$want" said; then
        echo "$* does not say $want: $(cat said)" >&2
        return 1
    fi
}

# A command prints lines: prints LINES COMMAND...
prints() {
    local want=$1 got
    shift
    got=$("$@")
    if [ "$got" != "$want" ]; then
        echo "$* prints: $got" >&2
        return 1
    fi
}

id_of() { rbd info --format json "$1" | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])'; }

# How many objects hold an image's data.
objects_of() { rados -p "${2:-${1%%/*}}" ls | grep -c "^rbd_data\..*$(id_of "$1")\." || true; }
