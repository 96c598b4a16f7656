ready

# Adds a task, kills the manager amid it, and waits until the next one has done it: killed WHAT IMAGE SECONDS
killed() {
    ceph rbd task add migration "$1" "$2" >/dev/null
    sleep "$3"
    kill -9 "$(cat ../run/mon.a.pid)"
    ready
    until [ "$(ceph rbd task list)" = '[]' ]; do sleep 0.3; done
}

# Each death is followed by a longer pause than the one before, so there are few of them.
seconds=0.1 destination=q/i
history p/i
before=$(id_of p/i)
rbd migration prepare --object-size 64K --stripe-unit 64K --stripe-count 1 p/i $destination
after=$(id_of $destination)
put $destination 9000003 'written to the destination'
put_file now 9000003 'written to the destination'
cp now i.now
killed execute $destination $seconds
test "$(state_of $destination)" = executed
unchanged $destination i
discard $destination 0 1048576
fill now 0 1048576
cp now i.now
killed abort $destination $seconds
test "$(id_of p/i)" = "$before"
unchanged p/i i
mapped p/i s1 s2
gone "${destination%%/*}" "$after"
gone p "$after"
rbd migration prepare p/i $destination
killed execute $destination $seconds
killed commit $destination $seconds
unchanged $destination i
mapped $destination s1 s2
gone p "$before"
fails 1 sh -c "rbd status $destination | grep Migration"
