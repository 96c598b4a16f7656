# What people do with pools, namespaces, notes and locks, by the official tool and by ours: what they print and end with is equal.

# Runs a command of both tools on pools that are alike; ids and addresses differ.
plain() { sed -E 's/client\.[0-9]+/client.N/g; s/[0-9.]+:0\/[0-9]+/ADDR/g; s/ +$//; /^$/d'; }
both() {
    local official ours
    official=$(CEPH_ARGS=--no-log-to-stderr rbd "$@" 2>&1 | plain; echo "exit ${PIPESTATUS[0]}")
    ours=$("$SPIRULA" rbd "${@//o\//s/}" 2>&1 | plain | sed 's/\<s\//o\//g'; echo "exit ${PIPESTATUS[0]}")
    [ "$official" = "$ours" ] || { echo "rbd $*"; diff <(echo "$official") <(echo "$ours"); return 1; }
}
# The same where the pool is a word of its own.
both_pools() {
    local official ours
    official=$(CEPH_ARGS=--no-log-to-stderr rbd "$@" o 2>&1 | plain; echo "exit ${PIPESTATUS[0]}")
    ours=$("$SPIRULA" rbd "$@" s 2>&1 | plain; echo "exit ${PIPESTATUS[0]}")
    [ "$official" = "$ours" ] || { echo "rbd $*"; diff <(echo "$official") <(echo "$ours"); return 1; }
}

for pool in o s other; do ceph osd pool create "$pool" 8 8 replicated >/dev/null 2>&1; done
ceph osd pool application enable other test >/dev/null 2>&1
both_pools pool init
for pool in o s; do ceph osd pool application get "$pool" | grep -q '"rbd"'; rados -p "$pool" get rbd_info - | grep -q validated; done
fails 2 "$SPIRULA" rbd pool init nowhere
"$SPIRULA" rbd pool init other 2>&1 | grep 'already registered to a different application'
"$SPIRULA" rbd pool init --force other
ceph osd pool application get other | grep -q '"rbd"'

# Namespaces
for ns in o/n o/n; do both namespace create $ns; done
both namespace create o/second
both_pools namespace create
for format in plain json xml; do both_pools namespace ls --format $format; done
for pool in o s; do
    rados -p $pool -N n ls | grep -x rbd_directory
    rbd create --size 8 $pool/n/image
    rbd create --size 8 $pool/second/image
    rbd trash mv $pool/second/image
done
# One has an image, the other one in the trash.
both namespace rm o/n
both namespace rm o/second
for pool in o s; do rbd rm --no-progress $pool/n/image; rbd create --size 8 $pool/second/another; done
both namespace rm o/n
both namespace rm o/n
both_pools namespace ls
fails 2 "$SPIRULA" rbd create --size 8 s/n/image
test -z "$(rados -p s -N n ls)"
both_pools pool stats
both_pools pool stats --format json
for image in o/second s/second; do test "$(rbd pool stats $image)" = "$("$SPIRULA" rbd pool stats $image)"; done

# Notes of an image
for pool in o s; do rbd create --size 8 $pool/image; done
both image-meta ls o/image
both image-meta ls --format json o/image
both image-meta set o/image key value
both image-meta set o/image another 'two words'
both image-meta set o/image
both image-meta set o/image key
for format in plain json xml; do both image-meta ls --format $format o/image; done
both image-meta get o/image key
both image-meta get o/image none
both image-meta get o/image
both image-meta rm o/image key
both image-meta rm o/image key
both image-meta ls o/image
both image-meta ls o/none
# They are there for the other tool, and one with a journal is written as any other.
test "$(rbd image-meta get s/image another)" = 'two words'
rbd create --size 8 --image-feature exclusive-lock,journaling s/journal
"$SPIRULA" rbd image-meta set s/journal a b
"$SPIRULA" rbd image-meta rm s/journal a
rbd journal inspect --pool s --image journal 2>&1 | grep ' 0 errors'

# Locks by hand
both lock ls o/image
both lock ls --format json o/image
both lock add o/image 'my id'
both lock add o/image 'my id'
both lock add --shared tag o/image other
for format in plain json xml; do both lock ls --format $format o/image; done
both lock rm o/image
both lock rm o/image 'my id'
both lock rm o/image 'my id' nobody
both lock rm o/image 'my id' client.1
# Each takes away what the other has taken, and the holder is shut out.
locker() { rbd lock ls --format json "$1" | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["locker"])'; }
"$SPIRULA" rbd lock rm o/image 'my id' "$(locker o/image)"
rbd lock rm s/image 'my id' "$(locker s/image)"
test "$(ceph osd blocklist ls 2>/dev/null | wc -l)" -ge 2
both lock ls o/image
both lock add --shared tag o/image a
both lock add --shared tag o/image b
both lock ls o/image

# Users of an image
both status o/image
both status --format json o/image
both status o/none
both status o/image@snap
rbd create --size 8 s/watched
mkfifo enter
( rbd watch s/watched <enter >/dev/null 2>&1 & )
exec 5>enter
for _ in $(seq 100); do "$SPIRULA" rbd status s/watched | grep -q watcher= && break; sleep 0.1; done
test "$(rbd status s/watched)" = "$("$SPIRULA" rbd status s/watched)"
test "$(rbd status --format json s/watched)" = "$("$SPIRULA" rbd status --format json s/watched)"
echo >&5
exec 5>&-

# Block devices, as far as they can be tried where the kernel has none
both device list
both showmapped --format json
both device ls --format xml
both device list -t disk
both device ls -t ggate
both map
both map o/image more
both map -t krbd o/none
both map -t krbd o/image -o bogus
both map -t krbd o/image -o ms_mode=fast
both map -t krbd o/image -o queue_depth=
both map -t krbd o/image -o force
both map -t ggate o/image
both unmap
both unmap /dev/null
both unmap /dev/none
both unmap -t krbd o/image
both unmap -t krbd o/image@snap
both unmap -t krbd o/image -o hard
test -z "$("$SPIRULA" rbd device list -t nbd)"
if ! [ -e /sys/bus/rbd ] && ! modprobe -n rbd 2>/dev/null; then
    fails 2 "$SPIRULA" rbd map -t krbd s/image
    tr '\n' ';' <failed |
        grep 'failed to load rbd kernel module (.*);rbd: sysfs write failed;In some cases .* "dmesg | tail".;rbd: map failed: (2) No such'
fi
if ! [ -e /sys/module/nbd ] && ! modprobe -n nbd 2>/dev/null; then
    fails 22 "$SPIRULA" rbd map -t nbd s/image
    tr '\n' ';' <failed | grep '^rbd-nbd: failed to load nbd kernel module: .*;rbd: rbd-nbd failed with error: exit status: 1;$'
    fails 22 "$SPIRULA" rbd map -t nbd s/none
    grep '^rbd-nbd: error opening image s/none: (2) No such file or directory' failed
fi
fails 22 "$SPIRULA" rbd unmap -t nbd s/image
grep '^rbd-nbd: s/image is not mapped' failed
fails 22 "$SPIRULA" rbd unmap -t nbd /dev/null
