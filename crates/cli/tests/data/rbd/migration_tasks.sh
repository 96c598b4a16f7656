ready

# What can't be done.
rbd create --size 8 p/plain
for what in execute commit abort; do
    denied 22 '[errno 22] RBD invalid argument (Image p/plain is not migrating)' ceph rbd task add migration $what p/plain
    denied 22 '[errno 22] RBD invalid argument (Image p/none is not migrating)' ceph rbd task add migration $what p/none
done

# Another layout, data in another pool, the same name elsewhere.
history p/i
before=$(id_of p/i)
rbd migration prepare --object-size 1M --stripe-unit 1M --stripe-count 1 --data-pool d p/i q/i
denied 22 '(Image q/i has not completed migration)' ceph rbd task add migration commit q/i
# The source is known by its name, too; it is the destination's task.
added=$(ceph rbd task add migration execute p/i)
test "$(value 'v["message"]' <<<"$added")" = 'Migrating image p/i to q/i'
test "$(value 'v["refs"]["action"]' <<<"$added")" = 'migrate execute'
test "$(value 'v["refs"]["image_id"]' <<<"$added")" = "$(id_of q/i)"
idle
test "$(state_of q/i)" = executed
unchanged q/i i
denied 22 '(Image q/i is not in ready state)' ceph rbd task add migration execute q/i
test "$(ceph rbd task add migration commit q/i | value 'v["message"]')" = 'Committing image migration for q/i'
idle
unchanged q/i i
mapped q/i s1 s2
gone p "$before"
fails 1 sh -c 'rbd status q/i | grep Migration'
says 'data_pool: d' rbd info q/i
# Objects of zeros do not exist, and what did not change is not there twice.
test "$(rbd du --format json q/i | value 'sum(i["used_size"] for i in v["images"])')" -le 12000000
rbd diff --from-snap s1 q/i@s2 >/dev/null
rbd snap purge --no-progress q/i
same q/i i.now
rbd rm --no-progress q/i

# Striped, of few features; the same place under another name.
history p/i
rbd migration prepare --object-size 2M --stripe-unit 64K --stripe-count 3 --image-feature layering p/i p/striped
migrate execute p/striped
unchanged p/striped i
migrate commit p/striped
unchanged p/striped i
# ... and back.
rbd migration prepare --object-size 4M --stripe-unit 4M --stripe-count 1 --image-feature layering,exclusive-lock,object-map,fast-diff p/striped p/i
migrate execute p/i
migrate commit p/i
unchanged p/i i
mapped p/i s1 s2
rbd snap purge --no-progress p/i
rbd rm --no-progress p/i

# Snapshots and writes of clients to the destination before anything is copied.
history p/i
rbd migration prepare --object-size 1M --stripe-unit 1M --stripe-count 1 p/i q/i
put q/i 9000000 'changed before it was copied'
put_file now 9000000 'changed before it was copied'
rbd snap create --no-progress q/i@s3
cp now i.s3
put q/i 12000000 'changed after the snapshot'
put_file now 12000000 'changed after the snapshot'
# Of an object that is as it was at s2: of others librbd tells the map of s3 wrongly that they are.
discard q/i 5242880 1048576
fill now 5242880 1048576
rbd snap create --no-progress q/i@s4
cp now i.now
migrate execute q/i
unchanged q/i i
same q/i@s3 i.s3
same q/i@s4 i.now
mapped q/i s1 s2 s3 s4
migrate commit q/i
unchanged q/i i
same q/i@s3 i.s3
mapped q/i s1 s2 s3 s4
rbd snap purge --no-progress q/i
rbd rm --no-progress q/i

# An image that shrank since its snapshots.
history p/i
rbd resize --no-progress --allow-shrink --size 6 p/i
truncate -s 6M i.now
rbd migration prepare --object-size 512K --stripe-unit 512K --stripe-count 1 p/i q/i
migrate execute q/i
migrate commit q/i
unchanged q/i i
mapped q/i s1 s2
rbd snap purge --no-progress q/i
rbd rm --no-progress q/i
