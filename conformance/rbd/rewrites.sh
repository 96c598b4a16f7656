#!/usr/bin/env bash
# Rewrites small parts of three images again and again, with checks of all that was written, while one OSD after the other is killed.
#
#     conformance/rbd/rewrites.sh DIR SPIRULA     starts a cluster of three OSDs in DIR, which must not exist
#
# fio's blocks have checksums of their own inside, so that two contents of a block may have one checksum. Needs fio and ceph-common.
set -euo pipefail
dir=$1 spirula=$2
"$spirula" up --detach --dir "$dir" >/dev/null
trap '"$spirula" down --dir "$dir" >/dev/null' EXIT
export CEPH_CONF=$dir/client.conf
{ cat "$dir/ceph.conf"; printf '[client]\nrbd_cache = false\n'; } >"$CEPH_CONF"
ceph osd pool create p 8
rbd pool init p
for image in a b c; do
    rbd create --size 64M --image-feature layering,exclusive-lock p/$image
    fio --name=$image --ioengine=rbd --pool=p --rbdname=$image --clientname=admin --rw=randwrite --bs=4k --size=12M --loops=40 \
        --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --output="$dir/$image.txt" 2>"$dir/$image.err" &
    jobs+=($!)
done
kills=0
while kill -0 "${jobs[@]}" 2>/dev/null; do
    sleep 4.5
    kill -9 "$(cat "$dir/run/osd.$((kills % 3)).pid")"
    kills=$((kills + 1))
done
for job in "${jobs[@]}"; do wait "$job"; done
echo "passed: $kills kills"
