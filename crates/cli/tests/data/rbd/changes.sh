# Features, the trash, options and watches, by the official tool and by ours, behind administration.sh: what they print and end with is
# equal, and each goes on with what the other has left.

# What differs by itself: ids and times, and with them the width of columns.
plain() {
    sed -E 's/client\.[0-9]+/client.N/g; s/[0-9.]+:0\/[0-9]+/ADDR/g; s/"id":"[0-9a-f]+"/"id":"ID"/g; s/rbd_data\.[0-9a-f]{8,16}\>/rbd_data.ID/g; s/\<[0-9a-f]{10,16}\>/ID/g
        s/\<(Sun|Mon|Tue|Wed|Thu|Fri|Sat) [A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} [0-9]{4}/DATE/g
        s/ +/ /g; s/ $//; /^$/d'
}

# What only one of the pools has.
for image in journal watched; do rbd rm --no-progress s/$image; done

# The pool is a word of its own, and may be in what is printed.
both_pools() {
    local official ours
    official=$(CEPH_ARGS=--no-log-to-stderr rbd "$@" o 2>&1 | plain; echo "exit ${PIPESTATUS[0]}")
    ours=$("$SPIRULA" rbd "$@" s 2>&1 | plain | sed -E 's/\<s\//o\//g; s/"pool":"s"/"pool":"o"/; s/<pool>s</<pool>o</'; echo "exit ${PIPESTATUS[0]}")
    [ "$official" = "$ours" ] || { echo "rbd $*"; diff <(echo "$official") <(echo "$ours"); return 1; }
}

# Features
for pool in o s; do rbd create --size 8 $pool/f; rbd snap create --no-progress $pool/f@s; done
both feature disable o/f
both feature disable o/f nonsense
both feature disable o/f object-map nonsense
both feature disable o/f object-map
both info o/f
both feature disable o/f object-map
both feature enable o/f object-map
both info o/f
both info o/f@s
both feature disable o/f exclusive-lock
both feature disable o/f layering
both feature enable o/f layering
both feature enable o/f --journal-splay-width 3 --journal-object-size 64K journaling
for image in o/f s/f; do rbd journal info --pool ${image%/f} --image f | grep -e splay -e order | plain; done | sort -u >journals
test "$(wc -l <journals)" = 2
put s/f 0 noted
rbd journal inspect --pool s --image f 2>&1 | grep ' 0 errors'
both feature disable o/f journaling fast-diff
fails 22 rbd journal info --pool s --image f
fails 1 sh -c "rados -p s ls | grep journal.*$(id_of s/f)"
both info o/f
both feature disable o/f exclusive-lock
both feature enable o/f object-map
both feature enable o/f fast-diff,exclusive-lock
both info o/f
both feature disable o/f deep-flatten
both feature enable o/f deep-flatten
both feature enable --bogus o/f object-map
both feature disable --journal-splay-width 3 o/f object-map
both feature disable o/none object-map
both feature disable o/f@s object-map
both feature enable
# A map that is not to be relied on is rebuilt, and written by both.
both object-map rebuild --no-progress o/f
both object-map rebuild --no-progress o/f@s
both info o/f
both info o/f@s
for at in '' @s; do rbd object-map check --no-progress s/f$at; "$SPIRULA" rbd object-map check --no-progress o/f$at; done
both info o/f
# One that misses an object is invalid from its check to its next rebuild.
for image in o/f s/f; do
    echo there >there
    rados -p ${image%/f} put rbd_data.$(id_of $image).0000000000000001 there
done
both object-map check --no-progress o/f
both info o/f
both object-map rebuild --no-progress o/f
both object-map check --no-progress o/f
both info o/f
for command in rebuild check; do
    both object-map $command --no-progress o/f@none
    both object-map $command --no-progress o/none
    both object-map $command
done
put s/f 5000000 more
"$SPIRULA" rbd snap create --no-progress s/f@after
rbd object-map check --no-progress s/f
rbd object-map check --no-progress s/f@after
# Who holds the lock of an image changes its features, whoever asks.
"$SPIRULA" rbd serve --exclusive --socket sock s/f >served 2>&1 & server=$!
for _ in $(seq 100); do grep -q '^serving' served && break; sleep 0.1; done
rbd feature disable s/f object-map
rbd info s/f | grep 'features: layering, exclusive-lock$'
rbd feature enable s/f object-map
kill $server
wait $server
fails 1 sh -c 'rbd info s/f | grep journaling'
# An image without a lock gets one, and none.
both create --size 8 --image-feature layering o/bare
for command in rebuild check; do both object-map $command --no-progress o/bare; done
both create --size 8 --image-feature layering,journaling o/no
both create --size 8 --image-feature layering,exclusive-lock,journaling --journal-splay-width 2 o/journaled
both info o/journaled
both info --format json o/journaled
for pool in o s; do rbd journal info --pool $pool --image journaled | grep 'splay'; rbd mirror pool enable $pool image; done
rbd mirror image enable o/journaled journal | grep -v enabled || rbd mirror image enable s/journaled journal
"$SPIRULA" rbd info s/journaled | grep 'mirroring primary: true'
both feature disable o/journaled journaling
for pool in o s; do rbd mirror image disable $pool/journaled; rbd mirror pool disable $pool; done
both feature disable o/journaled journaling
both rm --no-progress o/journaled
both feature enable o/bare journaling
both feature enable o/bare exclusive-lock journaling
put s/bare 0 noted
both info o/bare
both feature disable o/bare exclusive-lock journaling
put s/bare 0 plain
both info o/bare
for pool in o s; do rbd rm --no-progress $pool/bare; done

# The trash
for pool in o s; do for n in 1 2 3 4 5; do rbd create --size 8 $pool/t$n; done; rbd snap create --no-progress $pool/t4@s; done
for format in plain json xml; do both_pools trash ls --format $format; done
both trash mv o/t1
both trash mv o/t1
both trash mv o/t2 --expires-at '2 days'
both trash mv o/t3 --expires-at 'no date'
both trash mv o/t3@s
both trash mv
for long in '' --long; do for format in plain json xml; do both_pools trash ls $long --format $format; done; done
ids() { rbd trash ls "$1" | awk -v name="$2" '$2 == name {print $1}'; }
# The same by the ids of both pools: both_ids NAME COMMAND... with ID for the image.
both_ids() {
    local name=$1 official ours
    shift
    official=$(CEPH_ARGS=--no-log-to-stderr rbd "${@//ID/o/$(ids o "$name")}" 2>&1 | plain; echo "exit ${PIPESTATUS[0]}")
    ours=$("$SPIRULA" rbd "${@//ID/s/$(ids s "$name")}" 2>&1 | plain; echo "exit ${PIPESTATUS[0]}")
    [ "$official" = "$ours" ] || { echo "rbd $*"; diff <(echo "$official") <(echo "$ours"); return 1; }
}
both_ids t2 trash rm ID
both trash rm o/nothing
both trash rm
both trash restore o/nothing
both_ids t2 trash restore --image t3 ID
both_ids t2 trash restore --image other ID
both_pools ls
both trash mv o/other --expires-at tomorrow
both_pools trash purge
both_pools trash ls
both_pools trash purge --expired-before never
both_pools trash purge --expired-before '3 days'
both_pools trash ls --all
both_pools trash purge --threshold 2
both_pools trash purge --threshold x
both_pools trash purge --threshold 0.9
# What has snapshots stays, and its clone tells where it is.
both trash mv o/t4
both_ids t4 trash rm ID
both_pools trash purge
both_ids t4 trash restore ID
for pool in o s; do rbd --rbd-default-clone-format 2 clone $pool/t4@s $pool/child; done
both trash mv o/child
both_pools trash ls --long
both_pools trash ls --long --format json
both_ids child trash rm --no-progress ID
# What one puts there the other takes out.
id=$(ids o t5)
test -z "$id"
"$SPIRULA" rbd trash mv o/t5
rbd trash restore "o/$(ids o t5)"
rbd trash mv s/t5
"$SPIRULA" rbd trash restore "s/$(ids s t5)"
same s/t5 <(head -c 8M /dev/zero)
rbd trash mv s/t5
"$SPIRULA" rbd snap ls --pool s --image-id "$(ids s t5)"
"$SPIRULA" rbd info --pool s --image-id "$(ids s t5)" | grep "rbd image 't5'"
"$SPIRULA" rbd trash rm --no-progress "s/$(ids s t5)"
rbd trash mv o/t5
rbd trash rm --no-progress "o/$(ids o t5)"
both_pools trash ls nowhere
fails 95 "$SPIRULA" rbd trash purge schedule ls
fails 95 "$SPIRULA" rbd group ls s
fails 95 "$SPIRULA" rbd mirror pool info s
fails 95 "$SPIRULA" rbd migration prepare s/t3 s/t6

# Options
for level in image pool; do
    of=o
    [ $level = pool ] || of=o/f
    if [ $level = pool ]; then config() { local verb=$1; shift; both_pool_first config pool "$verb" "$@"; }
    else config() { local verb=$1; shift; both config image "$verb" o/f "$@"; }; fi
    both_pool_first() {
        local official ours verb="$1 $2 $3"
        shift 3
        official=$(CEPH_ARGS=--no-log-to-stderr rbd $verb o "$@" 2>&1 | plain; echo "exit ${PIPESTATUS[0]}")
        ours=$("$SPIRULA" rbd $verb s "$@" 2>&1 | plain; echo "exit ${PIPESTATUS[0]}")
        [ "$official" = "$ours" ] || { echo "rbd $verb $*"; diff <(echo "$official") <(echo "$ours"); return 1; }
    }
    for format in plain json xml; do config ls --format $format; done
    config get rbd_cache
    config get rbd_nothing
    config get nothing
    config get
    config set rbd_cache perhaps
    config set rbd_cache_size 1M
    config set rbd_cache false
    config set
    config get rbd_cache_size
    config ls
    config rm rbd_cache_size
    config rm rbd_cache_size
    config get rbd_cache
done
both config image set o/f rbd_cache
both config image ls o/none
both config pool ls
both config pool get
prints false rbd config image get s/f rbd_cache
prints false rbd config pool get s rbd_cache
ceph config get client.admin rbd_config_pool_override_update_timestamp 2>/dev/null | grep '^[1-9]'
both config global ls nonsense
both config global set client
both config global set client rbd_qos_iops_limit many
"$SPIRULA" rbd config global set client rbd_qos_iops_limit 500
"$SPIRULA" rbd config global set client.admin rbd_qos_iops_limit 600
rbd config global set global rbd_qos_bps_limit 7
rbd config global rm global rbd_config_pool_override_update_timestamp
for entity in global client client.admin; do
    both config global get $entity rbd_qos_iops_limit
    for format in plain json xml; do both config global ls $entity --format $format; done
done
both config image ls o/f
both --rbd-qos-iops-limit 3 config image ls o/f
"$SPIRULA" rbd config global rm client rbd_qos_iops_limit
rbd config global rm client.admin rbd_qos_iops_limit
both config global get client rbd_qos_iops_limit
"$SPIRULA" rbd config global rm global rbd_qos_bps_limit

# Watches
for tool in rbd "$SPIRULA rbd"; do
    rm -f entered; mkfifo entered
    ( $tool watch s/f <entered >"watched.${tool##*/}" 2>&1 & echo $! >watcher )
    exec 5>entered
    for _ in $(seq 100); do rbd status s/f | grep -q watcher= && break; sleep 0.1; done
    rbd resize --no-progress --allow-shrink --size $(( $(rbd info --format json s/f | jq .size) / 1048576 + 1 )) s/f
    for _ in $(seq 100); do grep -q HeaderUpdate "watched.${tool##*/}" && break; sleep 0.1; done
    echo >&5
    exec 5>&-
    for _ in $(seq 100); do rbd status s/f | grep -q 'Watchers: none' && break; sleep 0.1; done
done
# What comes last may come too late.
heard() { grep -e enter -e HeaderUpdate "$1" | sed -E 's/(cookie|notify_id|notifier_id)=[0-9]+//g' | sort -u; }
grep -q HeaderUpdate watched.rbd
test "$(heard watched.rbd)" = "$(heard "watched.${SPIRULA##*/} rbd")"
both watch o/none
