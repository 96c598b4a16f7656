# Differences, copies and files of whole images, by the official tool and by ours, behind changes.sh: what they print and end with is equal,
# and so are files. How far they are is not: that depends on what ends first.

eval "both_$(declare -f plain)"
plain() { both_plain | sed -E 's/^ [0-9]+ ([a-z0-9]+ [0-9]+ MiB)/ N \1/; s/"snapshot_id":[0-9]+/"snapshot_id":N/g'; }

# Of two runs with output and files in two directories, both have to be equal.
twice() {
    local official ours files
    mkdir -p official ours
    official=$(cd official; CEPH_ARGS=--no-log-to-stderr rbd "$@" 2>&1 | tr '\r' '\n' | grep -v '[0-9]% complete...$' | plain; echo "exit ${PIPESTATUS[0]}")
    ours=$(cd ours; "$SPIRULA" rbd "${@//o\//s/}" 2>&1 | tr '\r' '\n' | grep -v '[0-9]% complete...$' | plain | sed 's/\<s\//o\//g'; echo "exit ${PIPESTATUS[0]}")
    [ "$official" = "$ours" ] || { echo "rbd $*"; diff <(echo "$official") <(echo "$ours"); return 1; }
    files=$(diff -rq official ours) || { echo "rbd $*: $files"; return 1; }
}

# Images that were written, cut, made larger and holed between snapshots; the same in both pools.
cat >make.py <<'PY'
import os, sys, rados, rbd
MIB = 1 << 20
def write(image):
    image.write(b'a' * 10000, 0)
    image.write(b'b' * 5000, 4 * MIB - 100)
    image.write(b'c' * 100000, 20 * MIB)
    image.write(bytes(70000), 9 * MIB)
    image.create_snap('one')
    image.write(b'B' * 500, 4 * MIB + 100)
    image.discard(20 * MIB, 65536)
    image.discard(0, 4 * MIB)
    image.write(b'z' * 10, 30 * MIB)
    image.create_snap('two')
    image.resize(24 * MIB)
    image.write(b'q' * 7, 5)
    image.create_snap('three')
    image.discard(4 * MIB, 4 * MIB)
    image.write(b'd' * 3, 12 * MIB)
    image.resize(40 * MIB)
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster:
    for pool in 'o', 's':
        with cluster.open_ioctx(pool) as io:
            usual = dict(features=61)
            for name, options in (('d', usual), ('bare', dict(features=1)),
                                  ('striped', dict(features=1 | 2 | 4, stripe_unit=65536, stripe_count=3, order=20))):
                rbd.RBD().create(io, name, 40 * MIB, old_format=False, **{'order': 22, **options})
                with rbd.Image(io, name) as image:
                    write(image)
                    image.metadata_set('key', 'value of ' + name)
                    image.protect_snap('two')
                    rbd.RBD().clone(io, name, 'two', io, name + '-clone', **{'features': 61})
                with rbd.Image(io, name + '-clone') as image:
                    image.write(b'own', 4 * MIB + 2)
                    image.discard(28 * MIB, 4 * MIB)
                    image.create_snap('c1')
                    image.resize(21 * MIB)
                    image.write(b'more', 20 * MIB + 70000)
PY
/usr/bin/python3 make.py
for image in d bare striped d-clone bare-clone striped-clone; do
    for whole in '' --whole-object; do
        twice diff $whole o/$image
        case $image in
            *-clone) twice diff $whole o/$image@c1; twice diff $whole --from-snap c1 o/$image ;;
            *)
                for end in @one @two @three ''; do
                    twice diff $whole o/$image$end
                    # Of one image all pairs.
                    case $image in d) froms='one two three' ;; *) froms=one ;; esac
                    for from in $froms; do
                        # Ceph forgets objects that a smaller image has lost meanwhile, which we tell.
                        [ "$whole $from$end" = '--whole-object two' ] || twice diff $whole --from-snap $from o/$image$end
                    done
                done ;;
        esac
    done
done
twice diff --format xml o/d
twice diff --from-snap none o/d
twice diff o/d@none
twice diff o/none
twice diff --format json --pretty-format --from-snap one o/d@two

# Files
for image in d striped; do
    twice export-diff o/$image@one $image.1
    twice export-diff --from-snap one o/$image@two $image.2
    twice export-diff --from-snap two --whole-object o/$image@three $image.3
    twice export-diff --from-snap three o/$image $image.4
    twice export-diff o/$image $image.all
    twice export-diff --path $image.again o/$image@two
    twice merge-diff $image.1 $image.2 $image.12
    twice merge-diff $image.2 $image.3 $image.23
    twice merge-diff $image.12 $image.3 $image.123
    twice merge-diff $image.3 $image.4 $image.34
    twice merge-diff $image.123 $image.4 $image.1234
    twice export --export-format 2 o/$image $image.image
done
twice export-diff o/d-clone clone
twice export-diff o/d@one d.1
twice export-diff --from-snap none o/d nothing
twice export-diff o/d@none nothing
twice export-diff o/d
twice export-diff
twice merge-diff d.1 d.3 d.13
twice merge-diff d.1 none d.13
twice merge-diff d.1 d.2 d.12
twice merge-diff d.1 d.2
twice merge-diff d.1
cmp <("$SPIRULA" rbd export-diff --no-progress s/d@one -) ours/d.1
cmp <("$SPIRULA" rbd export --no-progress --export-format 2 s/d -) ours/d.image
cmp <("$SPIRULA" rbd merge-diff --no-progress - ours/d.2 - <ours/d.1) ours/d.12

# Brought to images, by each what the other has written.
for image in d striped; do
    for pool in o s; do rbd create --size 1 $pool/$image-next; done
    twice import-diff $image.2 o/$image-next
    for n in 1 2 3 4; do twice import-diff $image.$n o/$image-next; done
    twice import-diff $image.1 o/$image-next
    "$SPIRULA" rbd create --size 1 q/$image
    cat official/$image.1 | "$SPIRULA" rbd import-diff --no-progress - q/$image
    "$SPIRULA" rbd import-diff --no-progress official/$image.2 q/$image
    for at in @one @two ''; do
        rbd export --no-progress o/$image${at:-@two} wanted
        same q/$image$at wanted
        rm wanted
    done
    for at in @one @two @three ''; do
        rbd export --no-progress o/$image$at wanted
        same s/$image-next$at wanted
        rm wanted
    done
    rbd object-map check --no-progress s/$image-next
    rbd object-map check --no-progress s/$image-next@two
    test "$(objects_of o/$image-next)" = "$(objects_of s/$image-next)"
    twice import --export-format 2 $image.image o/$image-image
    twice import --export-format 2 $image.image o/$image-image
    both info o/$image-image
    both snap ls o/$image-image
    both image-meta ls o/$image-image
    "$SPIRULA" rbd import --no-progress --export-format 2 - q/$image-image <official/$image.image
    for at in @one @two @three ''; do
        rbd export --no-progress o/$image$at wanted
        same s/$image-image$at wanted
        same q/$image-image$at wanted
        rm wanted
    done
done
rbd create --size 1 o/cut; rbd create --size 1 s/cut
for len in 5 12 16 26 35 100; do
    head -c $len official/d.1 >official/cut
    cp official/cut ours
    twice import-diff --no-progress cut o/cut
done
twice import-diff /etc/hostname o/cut
twice import-diff none o/cut
twice import-diff
twice import --export-format 2 d.1 o/no
twice import --export-format 3 d.1 o/no
both ls o

# Copies
for image in d bare striped d-clone striped-clone; do
    twice cp o/$image o/$image-copy
    twice cp o/$image o/$image-copy
    twice deep cp o/$image o/$image-deep
    twice deep cp o/$image o/$image-deep
    twice info o/$image-copy
    twice info o/$image-deep
    twice snap ls o/$image-deep
    twice image-meta ls o/$image-copy
    twice image-meta ls o/$image-deep
    case $image in *-clone) snaps='@c1' ;; *) snaps='@one @two @three' ;; esac
    for at in '' $snaps; do
        rbd export --no-progress s/$image$at wanted
        same s/$image-deep$at wanted
        [ -n "$at" ] || same s/$image-copy wanted
        rm wanted
    done
    case $image in
        bare | striped) ;;
        *) for copy in copy deep; do rbd object-map check --no-progress s/$image-$copy; done ;;
    esac
    # As sparse as its source.
    test "$(objects_of s/$image-copy)" = "$(objects_of o/$image-copy)"
done
twice cp o/d@two o/two
rbd export --no-progress s/d@two wanted; same s/two wanted; rm wanted
twice deep cp o/d@two o/deep-two
rbd export --no-progress s/d@two wanted; same s/deep-two wanted; rm wanted
both snap ls o/deep-two
twice deep cp --flatten o/d-clone o/flat
both info o/flat
rbd export --no-progress s/d-clone wanted; same s/flat wanted; rm wanted
"$SPIRULA" rbd cp --no-progress --object-size 1M --image-feature layering s/d s/d-small
says 'order 20' rbd info s/d-small
rbd export --no-progress s/d wanted; same s/d-small wanted; rm wanted
twice cp o/none o/copy
twice cp o/d
twice cp o/d@none o/copy
twice deep cp o/d o/copy@snap
# Space to the byte, and since a snapshot
for image in d bare striped d-clone; do twice du --exact o/$image; done
for end in '' @one @two @three; do
    for more in '' --exact '--from-snap one' '--merge-snapshots'; do twice du $more o/d$end; done
done
twice du --from-snap one --exact o/d@three
twice du --from-snap one --merge-snapshots o/d
twice du --from-snap one --format json o/d@three
twice du --exact --merge-snapshots --format xml o/d
twice du --from-snap two o/d@one
twice du --from-snap none o/d
twice du --from-snap one o/d@none
twice du --from-snap one

# Groups, clones of clones
for pool in o s; do
    rbd namespace create $pool/ns
    rbd group create $pool/group
    rbd group image add $pool/group $pool/d
    for child in second ns/third gone; do rbd clone --rbd-default-clone-format 2 $pool/d-clone@c1 $pool/$child; done
    rbd trash mv $pool/gone
done
both info o/d
both info o/d@one
both info --format json o/bare
test "$("$SPIRULA" rbd info --format json o/d)" = "$(rbd info --format json o/d)"
both children o/d
both children --descendants o/d
both children --descendants --all o/d@two
both children --descendants o/d@one
both children --descendants o/d@none
for format in json xml; do
    test "$("$SPIRULA" rbd children --descendants --all --format $format o/d)" = "$(rbd children --descendants --all --format $format o/d)"
done

# Zeros that were written as data
cat >zeros.py <<'PY'
import os, rados, rbd
MIB = 1 << 20
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster:
    for pool in 'o', 's':
        with cluster.open_ioctx(pool) as io:
            rbd.RBD().create(io, 'zeros', 24 * MIB, old_format=False, features=61)
            with rbd.Image(io, 'zeros') as image:
                image.write(bytes(4 * MIB), 0)
                image.write(b'a' + bytes(MIB), 4 * MIB)
                image.create_snap('s')
                image.write(bytes(2 * MIB) + b'b', 9 * MIB)
                image.write(bytes(4 * MIB), 16 * MIB)
            with rbd.Image(io, 'second') as image:
                image.write(bytes(5 * MIB), 2 * MIB)
PY
/usr/bin/python3 zeros.py
for image in zeros second; do
    rbd export --no-progress o/$image wanted
    twice sparsify o/$image
    same o/$image wanted
    same s/$image wanted
    rm wanted
    test "$(objects_of o/$image)" = "$(objects_of s/$image)"
    twice du --exact o/$image
    rbd object-map check --no-progress s/$image
    both info o/$image
done
for size in 1 1K 5000 8M x; do twice sparsify --sparse-size $size o/zeros; done
twice sparsify --sparse-size 1M --no-progress o/zeros
twice sparsify --no-progress o/bare
twice sparsify o/zeros@s
twice sparsify o/none
twice sparsify

# What an interrupted copy leaves is an image that can be removed.
rbd create --size 1G s/large
rbd bench --io-type write --io-size 4M --io-total 256M s/large >/dev/null 2>&1
"$SPIRULA" rbd cp s/large q/part >/dev/null 2>&1 & copier=$!
for _ in $(seq 200); do rbd info q/part >/dev/null 2>&1 && [ "$(objects_of q/part)" -gt 3 ] && break; sleep 0.05; done
kill -9 $copier
wait $copier || true
for _ in $(seq 60); do rbd rm --no-progress q/part >/dev/null 2>&1 && break; sleep 1; done
fails 2 rbd info q/part
test "$(rados -p q ls | grep -c part || true)" = 0
