# Copies, differences, and images on their way to elsewhere.

rbd pool init p
truncate -s 50M file
put_file file 0 first
put_file file 30000000 later
rbd import --no-progress file p/i
rbd snap create --no-progress p/i@one
cp file one
for write in '1000 two' '45000000 more'; do
    put p/i ${write% *} ${write#* }
    put_file file ${write% *} ${write#* }
done
rbd snap create --no-progress p/i@two
cp file two
put p/i 20000000 three
put_file file 20000000 three

rbd cp --no-progress p/i q/copy
same q/copy file
rbd cp --no-progress p/i@one q/copy-of-one
same q/copy-of-one one
rbd deep cp --no-progress p/i q/deep
same q/deep file
same q/deep@one one
same q/deep@two two
rbd object-map check --no-progress q/deep
rbd object-map check --no-progress q/deep@one

# Differences bring another image along.
rbd export-diff --no-progress p/i@one d1
rbd export-diff --no-progress --from-snap one p/i@two d2
rbd export-diff --no-progress --from-snap two p/i d3
rbd create --size 50M q/follows
rbd import-diff --no-progress d1 q/follows
same q/follows one
fails 22 rbd import-diff --no-progress d3 q/follows
rbd import-diff --no-progress d2 q/follows
rbd import-diff --no-progress d3 q/follows
same q/follows file
same q/follows@one one
same q/follows@two two
rbd merge-diff --no-progress d1 d2 d12
rbd create --size 50M q/merged
rbd import-diff --no-progress d12 q/merged
same q/merged two
rbd export --no-progress --export-format 2 p/i all
rbd import --no-progress --export-format 2 all q/imported
same q/imported file
same q/imported@one one

# Zeros that take up space.
head -c 9M /dev/zero >zeros
rbd create --size 50M p/z
/usr/bin/python3 - <<'PY'
import os, rados, rbd
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io, rbd.Image(io, 'z') as image:
    image.write(bytes(9 << 20), 0)
    image.write(b'x' * 5000, 1 << 20)
PY
[ "$(objects_of p/z)" = 3 ]
rbd export --no-progress p/z before
rbd sparsify --no-progress --sparse-size 4K p/z
[ "$(objects_of p/z)" = 1 ]
same p/z before
rbd object-map check --no-progress p/z

# Features.
rbd feature disable p/i object-map fast-diff
rbd feature disable p/i exclusive-lock
says 'features: layering, deep-flatten' rbd info p/i
put p/i 10000000 unmapped
put_file file 10000000 unmapped
rbd feature enable p/i exclusive-lock object-map fast-diff
says 'object map invalid' rbd info p/i
rbd object-map rebuild --no-progress p/i
fails 1 sh -c 'rbd info p/i | grep invalid'
rbd object-map check --no-progress p/i
rbd feature disable p/i deep-flatten
fails 22 rbd feature enable p/i deep-flatten
same p/i file

# Migrations.
for target in q/moved p/striped; do
    options=
    [ $target = q/moved ] || options='--object-size 64K --stripe-unit 16K --stripe-count 4'
    source=$(rbd ls p | grep -x i >/dev/null && echo p/i || echo q/moved)
    rbd migration prepare $options $source $target
    same $target file
    put $target 41000000 under-way
    put_file file 41000000 under-way
    says 'prepared' rbd status $target
    rbd migration execute --no-progress $target
    same $target file
    rbd migration commit --no-progress $target
    fails 2 rbd info $source
    same $target file
    same $target@one one
    same $target@two two
done
rbd migration prepare p/striped q/back
same q/back file
rbd migration abort --no-progress q/back
fails 2 rbd info q/back
same p/striped file
same p/striped@two two

# Who looks on is told.
mkfifo typed
exec 3<>typed
rbd watch p/striped >watched 2>&1 <typed &
watcher=$!
for _ in $(seq 50); do
    rbd status p/striped | grep watcher= >/dev/null && break
    sleep 0.1
done
says watcher= rbd status p/striped
rbd resize --no-progress --size 60M p/striped
sleep 0.2
echo >&3
wait $watcher
grep -q HeaderUpdate watched
