ready
caps="See http://docs.ceph.com/en/latest/mgr/administrator/#client-authentication"
help="access denied: does your client key have mgr caps? $caps"
key() { # key NAME MGR_CAPS
    ceph auth get-or-create "client.$1" mon 'profile rbd' osd 'profile rbd' ${2:+mgr "$2"} >../ceph.client."$1".keyring
}
as() { local who=$1; shift; timeout 30 ceph -n "client.$who" -k ../ceph.client."$who".keyring "$@"; }
key none ''
key all 'profile rbd'
key p 'profile rbd pool=p'
key n 'profile rbd pool=p namespace=n'
key reader 'profile rbd-read-only'
rbd namespace create p/n
rbd create --size 8 p/n/i
rbd create --size 8 q/i
rbd create --size 8 p/i

denied 13 "Error EACCES: $help" as none rbd task list
denied 13 "Error EACCES: $help" as reader rbd task add remove q/i
test "$(as reader rbd task list)" = '[]'
denied 13 "Error EACCES: not authorized on pool=q, namespace=$help" as p rbd task add remove q/i
denied 13 "Error EACCES: not authorized on pool=p, namespace=$help" as n rbd task add remove p/i

# What others do is not seen.
/usr/bin/python3 - <<'PY' &
import os, time, rados, rbd
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('q') as io, rbd.Image(io, 'i') as image:
    open('opened', 'w').close()
    while not os.path.exists('close'): time.sleep(0.1)
PY
until [ -e opened ]; do sleep 0.1; done
task=$(as all rbd task add remove q/i | value 'v["id"]')
test "$(as p rbd task list)" = '[]'
denied 2 "No such task $task" as p rbd task list "$task"
denied 2 "No such task $task" as p rbd task cancel "$task"
test "$(as all rbd task list | value 'len(v)')" = 1
as all rbd task cancel "$task"
touch close
wait

as n rbd task add remove p/n/i >/dev/null
as p rbd task add remove p/i >/dev/null
idle
test -z "$(rbd ls p; rbd ls p/n)"

# The tool for images asks the manager itself.
timeout 30 rbd -n client.all -k ../ceph.client.all.keyring trash purge schedule add -p p 1d
test "$(timeout 30 rbd -n client.all -k ../ceph.client.all.keyring trash purge schedule ls -p p)" = 'every 1d'
