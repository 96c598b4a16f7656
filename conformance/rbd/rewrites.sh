#!/usr/bin/env bash
# Rewrites four images again and again, in small and large blocks, in order and at random, with checks of all that was written, while
# one OSD after the other is killed.
#
#     conformance/rbd/rewrites.sh DIR SPIRULA     starts a cluster of three OSDs in DIR, which must not exist
#     CODE='k=2 m=1' conformance/rbd/rewrites.sh DIR SPIRULA     the pool is erasure-coded
#
# fio's blocks have checksums of their own inside, so that two contents of a block may have one checksum. Needs fio and ceph-common.
set -euo pipefail
dir=$1 spirula=$2
"$spirula" up --detach --dir "$dir" >/dev/null
trap '"$spirula" down --dir "$dir" >/dev/null' EXIT
export CEPH_CONF=$dir/client.conf
{ cat "$dir/ceph.conf"; printf '[client]\nrbd_cache = false\n'; } >"$CEPH_CONF"
kind=replicated
if [ -n "${CODE:-}" ]; then
    read -ra code <<<"$CODE"
    ceph osd erasure-code-profile set code "${code[@]}" crush-failure-domain=osd
    kind='erasure code'
fi
# shellcheck disable=SC2086
ceph osd pool create p 8 8 $kind
rbd pool init p
# The way of writing, the block, the bytes that are written, and how often.
for job in 'randwrite 4k 12M 40' 'write 4k 12M 40' 'randwrite 4m 256M 40' 'write 4m 256M 40'; do
    read -r rw bs size loops <<<"$job"
    image=$rw-$bs
    rbd create --size "$size" "p/$image"
    fio --name="$image" --ioengine=rbd --pool=p --rbdname="$image" --clientname=admin --rw="$rw" --bs="$bs" --size="$size" --loops="$loops" \
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
for image in $(rbd ls p); do
    rbd object-map check --no-progress "p/$image"
    if rbd info "p/$image" | grep invalid; then exit 1; fi
done
echo "passed: $kills kills"
