# Clones, and what they see of their parents.

rbd pool init p
truncate -s 50M file
put_file file 0 first
put_file file 4194300 'across two objects'
put_file file 40000000 late
rbd import --no-progress file p/parent
rbd snap create --no-progress p/parent@s
put p/parent 0 FIRST
cp file parent
put_file parent 0 FIRST

for version in 1 2; do
    clone() { rbd clone --rbd-default-clone-format "$version" "$@"; }
    if [ $version = 1 ]; then
        fails 22 clone p/parent@s p/c1
        rbd snap protect p/parent@s
    fi
    clone p/parent@s p/c$version
    clone p/parent@s q/d$version
    says 'parent: p/parent@s' rbd info p/c$version
    says 'overlap: 50 MiB' rbd info p/c$version
    same p/c$version file
    [ "$(objects_of p/c$version)" = 0 ]
    # The first write to an object copies what the parent has of it.
    cp file clone
    for write in '100 partly' '4194302 BOTH' '20000000 new'; do
        put p/c$version ${write% *} ${write#* }
        put_file clone ${write% *} ${write#* }
    done
    same p/c$version clone
    same p/parent@s file
    rbd object-map check --no-progress p/c$version
    # The clone of a clone sees through both.
    rbd snap create --no-progress p/c$version@t
    [ $version = 2 ] || rbd snap protect p/c$version@t
    clone p/c$version@t p/g$version
    put p/g$version 40000001 grand
    cp clone grand
    put_file grand 40000001 grand
    same p/g$version grand
    # What is cut off does not come back from the parent.
    rbd resize --no-progress --allow-shrink --size 30M p/g$version
    rbd resize --no-progress --size 50M p/g$version
    truncate -s 30M grand
    truncate -s 50M grand
    same p/g$version grand
    same p/c$version@t clone
    rbd flatten --no-progress p/g$version
    same p/g$version grand
    fails 1 sh -c "rbd info p/g$version | grep parent:"
    rbd rm --no-progress p/g$version
    [ $version = 2 ] || rbd snap unprotect p/c$version@t
done
says 'q/d2' rbd children p/parent@s
[ "$(rbd children p/parent@s | sort | xargs)" = 'p/c1 p/c2 q/d1 q/d2' ]
fails 16 rbd snap unprotect p/parent@s
rbd rm --no-progress q/d1
rbd flatten --no-progress p/c1
same p/c1 clone
same p/c1@t clone
rbd snap unprotect p/parent@s
# Its clones of the second version keep the snapshot after it was removed.
rbd snap rm --no-progress p/parent@s
prints '' rbd snap ls p/parent
says trash rbd snap ls --all p/parent
same p/c2 clone
same q/d2 file
same p/parent parent
fails 39 rbd rm --no-progress p/parent
rbd snap purge --no-progress p/c2
rbd rm --no-progress p/c2
rbd flatten --no-progress q/d2
prints '' rbd snap ls --all p/parent
same q/d2 file
rbd rm --no-progress p/parent
