# Whoever may not read a pool does not by way of the manager.
rbd snap create --no-progress b/secret@s
rbd snap protect b/secret@s
for clone in one two; do rbd clone b/secret@s a/$clone; done
fails 1 as tenant ceph rbd task add flatten a/one
test -n "$(rbd info a/one | grep parent:)"
as reader ceph rbd task add flatten a/two >/dev/null
idle
test -z "$(rbd info a/two | grep parent:)"
same a/two secret

# A task that was asked for by somebody who may is not another one when the tenant has changed it: it is done by the rights of the
# pool where it lies.
rbd create --size 8 b/open
rbd snap create --no-progress b/open@s
rbd snap protect b/open@s
rbd clone b/open@s a/three
task=$(ceph rbd task add flatten a/three)
idle
test -z "$(rbd info a/three | grep parent:)"
as tenant rados -p a setomapval rbd_task "$(printf %016X "$(value 'v["sequence"]' <<<"$task")")" "${task//three/one}"
next_manager
until_tasks 'the task was not tried' retry_message
test -n "$(rbd info a/one | grep parent:)"
as tenant ceph rbd task cancel "$(value 'v["id"]' <<<"$task")"

# Migrations from pools that others may read only.
rbd create --size 8 b/moving
put b/moving 4096 'moved'
rbd export --no-progress b/moving moving
rbd migration prepare b/moving a/moving
fails 1 as tenant ceph rbd task add migration execute a/moving
ceph rbd task add migration execute a/moving >/dev/null
idle
fails 1 as tenant ceph rbd task add migration commit a/moving
ceph rbd task add migration commit a/moving >/dev/null
idle
same a/moving moving

# Schedules.
help="access denied: does your client key have mgr caps?"
denied 13 "Error EACCES: not authorized on b/$help" as tenant ceph rbd trash purge schedule add b/ 1d
denied 13 "Error EACCES: not authorized on $help" as tenant ceph rbd trash purge schedule add '' 1d
as tenant ceph rbd trash purge schedule add a/ 1d
ceph rbd trash purge schedule add b/ 2d
test "$(as tenant ceph rbd trash purge schedule list '' | value 'sorted(s["name"] for s in v.values())')" = "['a/']"
denied 13 "Error EACCES: not authorized on b/$help" as tenant ceph rbd trash purge schedule remove b/
test "$(ceph rbd trash purge schedule list '' | value 'len(v)')" = 2
