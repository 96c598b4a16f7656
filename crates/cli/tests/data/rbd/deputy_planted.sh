# Tasks that are planted do nothing in other pools, and what is done in the pool itself is done.
rbd namespace create a/n
rbd create --size 8 a/n/other
rbd create --size 8 a/mine
ref() { printf '"action": "remove", "pool_name": "%s", "pool_namespace": "%s", "image_name": "%s"' "$1" "$2" "$3"; }
plant a/ 1 "$(ref b '' secret)"
plant a/ 2 "$(ref a n other)"
plant a/n 3 "$(ref a '' mine)"
plant a/n 4 "$(ref b '' secret)"

# An image of the tenant's says that its data is in b, under the names of another's.
rbd create --size 8 a/liar
liar=rbd_header.$(id_of a/liar) prefix=rbd_data.$(id_of b/secret)
/usr/bin/python3 - "$liar" "$prefix" "$(pool_id b)" <<'PY'
import os, struct, sys, rados
header, prefix, pool = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
with rados.Rados(conffile=os.environ['CEPH_CONF'], rados_id='tenant',
                 conf={'keyring': '../ceph.client.tenant.keyring'}) as cluster, cluster.open_ioctx('a') as io:
    with rados.WriteOpCtx() as op:
        features = 1 | 128 # layering, data pool
        io.set_omap(op, ('features', 'object_prefix', 'data_pool_id'),
                    (struct.pack('<Q', features), struct.pack('<I', len(prefix)) + prefix, struct.pack('<q', pool)))
        io.operate_write_op(op, header)
PY
plant a/ 5 "$(ref a '' liar)"
# Numbers and names that would be everybody's, and what is no task at all.
plant a/ 18446744073709551615 "$(ref a '' nothing)"
as tenant rados -p a setomapval rbd_task 0000000000000006 "$(printf '[%.0s' $(seq 5000))"
as tenant rados -p a setomapval rbd_task nonsense "$(printf '{"sequence": 1e999}')"
plant a/ 7 "$(ref a '' mine)"
next_manager
gone a/mine
same b/secret secret
rbd info a/n/other >/dev/null
# Where the liar is tried the manager has no rights.
until_tasks 'the lying image was not tried' retry_message
same b/secret secret
warned "pool 'a' namespace ''"
warned 'takes more rights than it has'
# What the tenant asks for by name is done with the tenant's rights.
rbd create --size 8 a/asked
as tenant ceph rbd task add remove a/asked >/dev/null
gone a/asked
as tenant ceph rbd task cancel planted-5
# Nor does the administrator remove what the image says is its own.
task=$(ceph rbd task add remove a/liar | value 'v["id"]')
until_tasks 'the lying image was not tried' retry_message
same b/secret secret
ceph rbd task cancel "$task"
# Others' tasks have their numbers still.
rbd create --size 8 b/asked
ceph rbd task add remove b/asked | value 'v["sequence"]' | grep -x 1
gone b/asked
as tenant rados -p a rm rbd_task
