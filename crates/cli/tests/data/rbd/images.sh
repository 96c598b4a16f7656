# Images, what is written to them, and their snapshots.

rbd pool init p
rbd create --size 1G p/a
prints a rbd ls p
says 'size 1 GiB in 256 objects' rbd info p/a
says 'features: layering, exclusive-lock, object-map, fast-diff, deep-flatten' rbd info p/a
says '1 GiB' rbd ls -l p
says 'Total Images: 1' rbd pool stats p
says 'Provisioned Size: 1 GiB' rbd pool stats p
fails 17 rbd create --size 1G p/a
fails 2 rbd info p/none
rbd resize --no-progress --size 3G p/a
says 'size 3 GiB in 768 objects' rbd info p/a
fails 22 rbd resize --no-progress --size 2G p/a
rbd resize --no-progress --size 2G --allow-shrink p/a
says 'size 2 GiB in 512 objects' rbd info p/a
rbd object-map check --no-progress p/a
rbd bench --io-type write --io-size 64K --io-total 4M --io-pattern rand p/a >bench 2>&1
rbd bench --io-type read --io-size 64K --io-total 4M p/a >bench 2>&1
rbd object-map check --no-progress p/a
says 'Watchers: none' rbd status p/a

# Data comes back, and holes stay holes.
truncate -s 70M file
put_file file 0 first
put_file file 30000000 middle
put_file file 73400315 'last!'
rbd import --no-progress file p/i
same p/i file
[ "$(objects_of p/i)" = 3 ]
[ "$(du -k exported | cut -f1)" -lt 20480 ]
says '10 MiB' rbd du p/i
prints 3 sh -c 'rbd diff p/i | grep -c data'
put p/i 30000003 MIDDLE
put p/i 50000000 new
put_file file 30000003 MIDDLE
put_file file 50000000 new
same p/i file
rbd object-map check --no-progress p/i
rbd import --no-progress --object-size 32K --stripe-unit 4K --stripe-count 5 file p/striped
says 'stripe unit: 4 KiB' rbd info p/striped
same p/striped file
rbd import --no-progress --data-pool q file p/apart
says 'data_pool: q' rbd info p/apart
same p/apart file
[ "$(objects_of p/apart)" = 0 ] && [ "$(objects_of p/apart q)" = 4 ]
rbd import --no-progress --image-feature layering file p/bare
same p/bare file
head -c 5M /dev/urandom >random
rbd import --no-progress - p/piped <random
same p/piped random
head -c 4097 /dev/zero >zeros
rbd import --no-progress zeros p/zeros
[ "$(objects_of p/zeros)" = 0 ]

# Snapshots.
cp file one
rbd snap create --no-progress p/i@one
put p/i 5 ' and second'
put p/i 70000000 late
put_file file 5 ' and second'
put_file file 70000000 late
rbd snap create --no-progress p/i@two
fails 17 rbd snap create --no-progress p/i@two
rbd resize --no-progress --allow-shrink --size 40M p/i
cp file short
truncate -s 40M short
same p/i short
same p/i@one one
same p/i@two file
[ "$(rbd snap ls p/i | tail -n +2 | awk '{print $2}' | xargs)" = 'one two' ]
prints '5 11 data 67108864 2891140 data' sh -c 'rbd diff --from-snap one p/i@two | tail -n +2 | xargs'
rbd snap rename p/i@two p/i@zwei
fails 2 rbd info p/i@two
rbd snap rollback --no-progress p/i@zwei
same p/i file
rbd snap rollback --no-progress p/i@one
same p/i one
same p/i@zwei file
rbd object-map check --no-progress p/i
rbd object-map check --no-progress p/i@one
rbd snap limit set --limit 2 p/i
fails 122 rbd snap create --no-progress p/i@three
fails 34 rbd snap limit set --limit 1 p/i
rbd snap limit clear p/i
rbd snap create --no-progress p/i@three
rbd snap protect p/i@three
fails 16 rbd snap rm --no-progress p/i@three
fails 39 rbd rm --no-progress p/i
says 'which is protected' rbd snap purge --no-progress p/i
rbd snap unprotect p/i@three
fails 2 rbd snap rm --no-progress p/i@one
same p/i one
rbd snap purge --no-progress p/i
prints '' rbd snap ls p/i
same p/i one

# Names.
rbd mv p/i p/j
fails 2 rbd info p/i
same p/j one
rbd rm --no-progress p/j
fails 2 rbd info p/j

# What is noted of an image.
rbd image-meta set p/a key 'some value'
prints 'some value' rbd image-meta get p/a key
says key rbd image-meta list p/a
rbd image-meta remove p/a key
fails 2 rbd image-meta get p/a key
rbd config image set p/a rbd_cache false
says 'rbd_cache' rbd config image ls p/a
prints false rbd config image get p/a rbd_cache
rbd config image rm p/a rbd_cache
rbd config pool set p rbd_cache_size 1048576
prints 1048576 rbd config pool get p rbd_cache_size
rbd config image ls p/a | grep 'rbd_cache_size  *1048576  *pool' >/dev/null
rbd config pool rm p rbd_cache_size

# Locks.
rbd lock add p/a mine
fails 16 rbd lock add p/a other
locker=$(rbd lock ls p/a | awk '/client/ {print $1}')
rbd lock rm p/a mine "$locker"
prints '' rbd lock ls p/a
rbd lock add --shared tag p/a one
rbd lock add --shared tag p/a two
says 'There are 2 shared locks' rbd lock ls p/a
