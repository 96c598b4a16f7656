ready

# A clone, with its own writes and snapshots, that goes elsewhere as a clone or does without its parent.
for flatten in '' --flatten; do
    for format in 1 2; do
        rm -f c.*
        rbd create --size 30M p/parent
        for offset in 0 4194304 10000000 25165820; do put p/parent $offset "parent at $offset"; done
        rbd snap create --no-progress p/parent@s
        rbd snap protect p/parent@s
        rbd clone --rbd-default-clone-format $format p/parent@s p/c
        rbd export --no-progress p/c c.s0
        rbd snap create --no-progress p/c@s0
        put p/c 10000100 'own data'
        discard p/c 4194304 4194304
        rbd snap create --no-progress p/c@s1
        rbd export --no-progress p/c@s1 c.s1
        put p/c 0 'written at last'
        rbd export --no-progress p/c c.now
        rbd migration prepare --object-size 1M --stripe-unit 1M --stripe-count 1 $flatten p/c q/c
        migrate execute q/c
        test "$(rbd info q/c | grep -c parent:)" = "$([ $flatten ] && echo 0 || echo 1)"
        migrate commit q/c
        same q/c@s0 c.s0
        same q/c@s1 c.s1
        same q/c c.now
        mapped q/c s0 s1
        rbd snap purge --no-progress q/c
        rbd rm --no-progress q/c
        # The one that prepared it has listed the destination with the parent, also where it does without.
        rbd clone --rbd-default-clone-format $format p/parent@s p/c
        rbd migration prepare $flatten p/c q/c
        migrate abort q/c
        rbd rm --no-progress p/c
        rbd snap unprotect p/parent@s
        rbd snap purge --no-progress p/parent
        rbd rm --no-progress p/parent
    done
done

# The source's clones follow it, and come back with it.
for format in 1 2; do
    rm -f child late
    history p/i
    rbd snap protect p/i@s1
    rbd clone --rbd-default-clone-format $format p/i@s1 p/child
    rbd snap create --no-progress p/child@own
    put p/child 9000000 'of the child'
    rbd export --no-progress p/child child
    rbd migration prepare p/i q/i
    same p/child child
    # A clone that is made meanwhile.
    rbd clone --rbd-default-clone-format $format q/i@s1 q/late
    rbd export --no-progress q/late late
    migrate execute q/i
    same p/child child
    migrate abort q/i
    prints 'p/child
q/late' sh -c 'rbd children p/i@s1 | sort'
    same p/child child
    same p/child@own i.s1
    same q/late late
    unchanged p/i i
    mapped p/i s1 s2
    rbd migration prepare p/i q/i
    migrate execute q/i
    migrate commit q/i
    prints 'p/child
q/late' sh -c 'rbd children q/i@s1 | sort'
    same p/child child
    same q/late late
    unchanged q/i i
    rbd snap purge --no-progress p/child
    rbd rm --no-progress p/child
    rbd rm --no-progress q/late
    rbd snap unprotect q/i@s1
    rbd snap purge --no-progress q/i
    rbd rm --no-progress q/i
done
