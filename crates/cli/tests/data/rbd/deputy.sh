# What the scripts about the manager as a deputy share: a tenant with rights in pool a only, and what is others' in pool b.
key() { # key NAME OSD_CAPS MGR_CAPS
    ceph auth get-or-create "client.$1" mon 'profile rbd' osd "$2" mgr "$3" >../ceph.client."$1".keyring
}
as() { # as NAME TOOL ARGUMENTS...
    local who=$1 tool=$2
    shift 2
    timeout 30 "$tool" -n "client.$who" -k ../ceph.client."$who".keyring "$@"
}
pool_id() { ceph osd pool ls detail -f json | value "[p['pool_id'] for p in v if p['pool_name'] == '$1'][0]"; }

# A task that nobody has asked the manager for: plant POOL/NAMESPACE NUMBER REFS
plant() {
    local key json
    key=$(printf '%016X' "$2")
    json="{\"sequence\": $2, \"id\": \"planted-$2\", \"message\": \"Removing image\", \"refs\": {$3}}"
    as tenant rados -p "${1%%/*}" -N "${1#*/}" setomapval rbd_task "$key" "$json"
}

# The next manager begins, and reads what there is.
next_manager() { ceph mgr fail >/dev/null 2>&1; sleep 1; ready; }
gone() { # gone POOL/IMAGE
    for _ in $(seq 150); do
        if ! rbd info "$1" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "$1 is still there" >&2
    return 1
}
warned() { # warned TEXT
    for _ in $(seq 50); do
        if ceph log last 100 warn | grep -F -- "$1" >/dev/null; then return; fi
        sleep 0.1
    done
    echo "nobody was warned: $1" >&2
    return 1
}
ready
key tenant 'profile rbd pool=a' 'profile rbd pool=a'
key reader 'profile rbd pool=a, profile rbd-read-only pool=b' 'profile rbd pool=a'
rbd create --size 8 b/secret
put b/secret 0 'what is in b is nobody else'"'"'s'
rbd export --no-progress b/secret secret
