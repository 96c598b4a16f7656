# An image of pool p that says that its data is in q, under the names of another's, is changed by nobody: its data would be that one's.
ready
rbd create --size 8 q/secret
put q/secret 0 'what is in q is nobody else'"'"'s'
rbd export --no-progress q/secret secret
rbd create --size 8 p/parent
put p/parent 0 'another text, and longer than the first one was'
rbd snap create --no-progress p/parent@s; rbd snap protect p/parent@s
rbd clone p/parent@s p/liar
rbd create --size 8 p/plain
/usr/bin/python3 - "rbd_data.$(id_of q/secret)" "$(ceph osd pool ls detail -f json | value "[p['pool_id'] for p in v if p['pool_name'] == 'q'][0]")" \
    "$(id_of p/liar)" "$(id_of p/plain)" <<'PY'
import os, struct, sys, rados
prefix, pool = sys.argv[1].encode(), int(sys.argv[2])
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io:
    for image in sys.argv[3:]:
        header = 'rbd_header.' + image
        with rados.WriteOpCtx() as op:
            features = 1 | 128 # layering, data pool
            io.set_omap(op, ('features', 'object_prefix', 'data_pool_id'),
                        (struct.pack('<Q', features), struct.pack('<I', len(prefix)) + prefix, struct.pack('<q', pool)))
            io.operate_write_op(op, header)
PY
for task in 'flatten p/liar' 'remove p/plain'; do
    id=$(ceph rbd task add $task | value 'v["id"]')
    until_tasks "$task was not tried" 'RBD permission error'
    ceph rbd task cancel "$id"
    idle
done
# The same where the administrator uses the tool.
for command in 'flatten --no-progress p/liar' 'resize --no-progress --size 4 --allow-shrink p/plain' 'resize --no-progress --size 16 p/plain' \
    'rm --no-progress p/plain' 'snap create --no-progress p/plain@x' 'bench --io-type write --io-size 4K --io-total 4K p/plain'; do
    if "$SPIRULA" rbd $command >failed 2>&1; then
        echo "$command succeeded" >&2
        exit 1
    fi
    grep -i 'not permitted' failed >/dev/null || { cat failed >&2; exit 1; }
done
same q/secret secret
