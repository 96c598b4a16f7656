ready

# What is left of an image in its pools: left ID
left() { for pool in p q; do rados -p "$pool" ls --all | grep -F "$1" || true; done; }

# Images with journals are removed with them, wherever the entries are.
for data in p q; do
    rbd create --size 64 --image-feature exclusive-lock --image-feature journaling --journal-pool "$data" \
        --journal-object-size 1M --journal-splay-width 3 p/noted
    rbd bench --io-type write --io-size 1M --io-total 16M p/noted >/dev/null
    id=$(id_of p/noted)
    rados -p "$data" ls | grep "^journal_data\..*\.$id\.3"
    rados -p p ls | grep -x "journal.$id"
    ceph rbd task add remove p/noted >/dev/null
    idle
    prints '' rbd ls p
    prints '' left "$id"
done
rbd create --size 8 --image-feature exclusive-lock --image-feature journaling p/noted
rbd bench --io-type write --io-size 1M --io-total 4M p/noted >/dev/null
id=$(id_of p/noted)
rbd trash mv p/noted
ceph rbd task add trash remove p/"$id" >/dev/null
idle
prints '' rbd trash ls p
prints '' left "$id"

# Those that are mirrored are forgotten by mirroring, which is told.
rbd mirror pool enable p image
rbd create --size 8 --image-feature exclusive-lock --image-feature journaling p/mirrored
rbd mirror image enable p/mirrored journal
rbd bench --io-type write --io-size 1M --io-total 4M p/mirrored >/dev/null
id=$(id_of p/mirrored)
rados -p p listomapkeys rbd_mirroring | grep -x "image_$id"
mkfifo enter
rados -p p watch rbd_mirroring <enter >told 2>&1 &
exec 9>enter
until grep -q 'press enter' told; do sleep 0.1; done
ceph rbd task add remove p/mirrored >/dev/null
idle
prints '' left "$id"
fails 1 grep -q . <(rados -p p listomapkeys rbd_mirroring | grep "$id")
echo >&9
wait
test "$(grep -c -F "$id" told)" = 2

# The copies of an image that is elsewhere are its own cluster's to remove.
rbd create --size 8 --image-feature exclusive-lock --image-feature journaling p/mirrored
rbd mirror image enable p/mirrored journal
rbd mirror image demote p/mirrored
task=$(ceph rbd task add remove p/mirrored | value 'v["id"]')
until ceph rbd task list "$task" | grep '"retry_message": "\[errno 22\]' >/dev/null; do sleep 0.1; done
ceph rbd task cancel "$task"
rbd mirror image promote p/mirrored
ceph rbd task add remove p/mirrored >/dev/null
idle
prints '' rbd ls p

# Snapshots of mirroring go with the image. The manager refuses such images, as Ceph's does.
rbd create --size 8 p/mirrored
rbd mirror image enable p/mirrored snapshot
id=$(id_of p/mirrored)
denied 16 '[errno 16] RBD image is busy (Image p/mirrored has snapshots)' ceph rbd task add remove p/mirrored
"$SPIRULA" rbd rm --no-progress p/mirrored
prints '' left "$id"
fails 1 grep -q . <(rados -p p listomapkeys rbd_mirroring | grep "$id")
prints '' rbd ls p

# An image that is mirrored by its journal and has snapshots of mirroring, as one that was mirrored by them before: without its journal it is
# not mirrored, and has none.
rbd create --size 8 --image-feature exclusive-lock p/mirrored
rbd mirror image enable p/mirrored snapshot
id=$(id_of p/mirrored)
rbd feature enable p/mirrored journaling
/usr/bin/python3 - "$id" <<'PY'
import os, struct, sys, rados
id = struct.pack('<I', len(sys.argv[1])) + sys.argv[1].encode()
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io:
    record = bytearray(io.execute('rbd_mirroring', 'rbd', 'mirror_image_get', id)[1])
    # The mode is the last byte: 0 for the journal.
    record[-1] = 0
    assert io.execute('rbd_mirroring', 'rbd', 'mirror_image_set', id + bytes(record))[0] == 0
PY
rbd mirror pool enable p pool
rbd snap ls --all p/mirrored | grep mirror >/dev/null
timeout 60 "$SPIRULA" rbd feature disable p/mirrored journaling
prints '' rbd snap ls --all p/mirrored
fails 1 grep -q . <(rados -p p listomapkeys rbd_mirroring | grep "$id")
rbd rm --no-progress p/mirrored
prints '' left "$id"
rbd mirror pool enable p image

# Clones with journals are flattened, which their journals tell, and images with journals are migrated.
rbd create --size 16M --object-size 1M p/parent
rbd bench --io-type write --io-size 64K --io-total 4M --io-pattern rand p/parent >/dev/null
rbd snap create --no-progress p/parent@s
rbd snap protect p/parent@s
rbd clone --image-feature layering,exclusive-lock,object-map,journaling p/parent@s p/clone
rbd bench --io-type write --io-size 64K --io-total 1M --io-pattern rand p/clone >/dev/null
rbd export --no-progress p/clone before
ceph rbd task add flatten p/clone >/dev/null
idle
prints '' rbd children p/parent@s
same p/clone before
# Begun and ended, as the last of all.
rbd journal status --pool p --image clone 2>/dev/null | grep 'positions=\[\[object_number=1, tag_tid=[0-9]*, entry_tid=1\]'
# Migrates the image from one pool to the other, or gives it up: ended WHAT FROM TO
ended() {
    rbd migration prepare "$2" "$3"
    put "$3" 5000 "written before $1"
    rm -f before
    rbd export --no-progress "$3" before
    ceph rbd task add migration execute "$3" >/dev/null
    idle
    same "$3" before
    ceph rbd task add migration "$1" "$3" >/dev/null
    idle
}
ended commit p/clone q/clone
same q/clone before
ended abort q/clone p/clone
same q/clone before
put q/clone 9000 after
rbd info q/clone | grep 'features:.*journaling'
rados -p q ls | grep -x "journal.$(id_of q/clone)"
prints '' sh -c 'rados -p p ls | grep ^journal || true'
