# Images through `ours`, the tool under test, and `rbd`, the official one, in turns.

# Both tools print the same of something, whatever was asked: agree ARGUMENTS...
agree() {
    # Without what its library logs, be it within a line.
    CEPH_ARGS='--log-to-stderr=false --err-to-stderr=false' rbd "$@" >theirs 2>&1 || true
    ours "$@" >mine 2>&1 || true
    diff theirs mine || { echo "rbd $*" >&2; return 1; }
}

# Both tools read the same: alike IMAGE FILE
alike() {
    rm -f mine
    ours export --no-progress "$1" mine
    cmp mine "$2"
    same "$1" "$2"
}

# The object map says what there is.
mapped() { rbd object-map check --no-progress "$1"; }

head -c 9M /dev/urandom >file
truncate -s 21M file
head -c 100000 /dev/urandom | dd of=file bs=1 seek=17000000 conv=notrunc status=none

# Made by either, read by both.
ours import --no-progress file p/ours
rbd import --no-progress file p/theirs
ours import --no-progress --stripe-unit 64K --stripe-count 3 --object-size 1M --data-pool q file p/striped
ours import --no-progress - p/piped <file
for image in ours theirs striped piped; do
    alike p/$image file
    mapped p/$image
    agree info p/$image --format json
    agree info p/$image
    agree du p/$image --format json
done
ours create --size 1G p/empty
agree ls p
agree ls -l p
agree ls -l p --format json

agree info p/none
agree ls none
agree snap create p/none@s
agree snap create p/ours
agree create p/x
agree create --size 10 --order 99 p/x
agree create --size 10 --image-feature colour p/x
agree create --size 10 p/ours
agree clone p/ours@none p/x
agree du p/none
agree export p/none -
agree import /none p/x

# Snapshots.
ours snap create --no-progress p/ours@one
ours bench --io-type write --io-size 8K --io-total 2M --io-pattern rand p/ours >/dev/null
mapped p/ours
alike p/ours@one file
rbd snap create --no-progress p/ours@two
ours snap protect p/ours@two
ours snap rename p/ours@two p/ours@zwei
agree snap ls p/ours
agree snap ls p/ours --format json
agree snap rm --no-progress p/ours@zwei
agree du p/ours --format json
agree info p/ours@zwei
rbd export --no-progress p/ours changed
ours snap rollback --no-progress p/ours@one
alike p/ours file
mapped p/ours
ours snap unprotect p/ours@zwei
alike p/ours@zwei changed
ours snap rm --no-progress p/ours@zwei
rbd object-map check --no-progress p/ours@one
agree du p/ours --format json

# Sizes.
ours resize --no-progress --size 40 p/theirs
ours resize --no-progress --size 10 --allow-shrink p/theirs
ours resize --no-progress --size 12 p/theirs
head -c 10M file >cut; truncate -s 12M cut
alike p/theirs cut
mapped p/theirs
agree resize --no-progress --size 1 p/theirs
agree resize --no-progress --size 12 p/theirs

# Clones, of both formats, both ways.
ours snap protect p/ours@one
ours clone p/ours@one q/new --rbd_default_clone_format=2
ours clone p/ours@one q/old --rbd_default_clone_format=1
rbd clone p/ours@one q/official --rbd_default_clone_format=2
agree children p/ours@one
agree children p/ours --format json
agree snap unprotect p/ours@one
for clone in new old official; do
    agree info q/$clone
    alike q/$clone file
    ours snap create --no-progress q/$clone@before
    ours bench --io-type write --io-size 4K --io-total 256K --io-pattern rand q/$clone >/dev/null
    rbd bench --io-type write --io-size 4K --io-total 256K --io-pattern rand q/$clone >/dev/null 2>&1
    rm -f written; rbd export --no-progress q/$clone written
    alike q/$clone written
    alike q/$clone@before file
    mapped q/$clone
    agree info q/$clone --format json
    ours flatten --no-progress q/$clone
    alike q/$clone written
    alike q/$clone@before file
    mapped q/$clone
    rbd object-map check --no-progress q/$clone@before
    agree info q/$clone
done
ours snap unprotect p/ours@one
agree children p/ours@one

# Removal, also of what should not be removed.
agree rm --no-progress p/ours
agree rm --no-progress p/none
ours snap purge --no-progress p/ours
rbd bench --io-type write --io-pattern rand --io-threads 1 --io-size 4K --io-total 1G p/empty >/dev/null 2>&1 &
other=$!
until rbd status p/empty | grep watcher= >/dev/null; do sleep 0.1; done
agree rm --no-progress p/empty

# Both write the same image at once: the lock goes to and fro.
ours bench --io-type write --io-size 4K --io-total 2M p/empty >/dev/null
# It may have ended before.
kill $other || true
wait $other || true

# Who writes does what others ask for.
ours bench --io-type write --io-threads 2 --io-size 4K --io-total 1G p/empty >/dev/null 2>&1 &
other=$!
until rbd lock ls p/empty | grep auto >/dev/null; do sleep 0.1; done
rbd snap create --no-progress p/empty@asked
rbd resize --no-progress --size 1200 p/empty
rbd snap rm --no-progress p/empty@asked
kill -0 $other
kill $other; wait $other || true
says "size 1.2 GiB" rbd info p/empty

for image in ours theirs striped piped; do ours rm --no-progress p/$image; done
# Of the removed images nothing is left.
id=$(rbd info p/empty | sed -n 's/.*\tid: //p')
left=$(rados -p p ls | grep -v "^rbd_\(directory\|info\|children\|id.empty\)$" | grep -v "$id" || true)
if [ -n "$left" ]; then echo "left: $left" >&2; false; fi
