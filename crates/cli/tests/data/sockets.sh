# Admin sockets, as collectd's plugin, old tools and `ceph daemon` speak to them.

# Sends bytes (with Python's escapes) to a daemon's socket and prints what comes back after the length.
asok() {
    /usr/bin/python3 - "run/$1.asok" "$2" <<'EOF'
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode().decode('unicode_escape').encode('latin-1'))
data = b''
while chunk := s.recv(65536):
    data += chunk
length, = struct.unpack('>I', data[:4])
assert length == len(data) - 4, (length, len(data))
sys.stdout.write(data[4:].decode())
EOF
}

# As collectd's plugin asks, as clients did before there was JSON, and as `ceph daemon` does.
for daemon in mon.a osd.0; do
    [ "$(asok $daemon '{ "prefix": "0" }\n')" = 2 ]
    [ "$(asok $daemon '\0\0\0\0')" = 2 ]
    asok $daemon '{ "prefix": "perf dump" }\0' | jq -S 'map_values(keys)' >dump
    for request in '{ "prefix": "1" }\n' '{ "prefix": "perfcounters_dump" }\n' '\0\0\0\1' '{ "prefix": "perf dump" }\n'; do
        asok $daemon "$request" | jq -S 'map_values(keys)' | diff dump -
    done
    asok $daemon '{ "prefix": "perf schema" }\0' | jq -S 'map_values(keys)' | diff dump -
    for request in '{ "prefix": "2" }\n' '{ "prefix": "perfcounters_schema" }\n' '\0\0\0\2'; do
        asok $daemon "$request" | jq -S 'map_values(keys)' | diff dump -
    done
    grep . dump >/dev/null
    invalid='ERROR: (22) Invalid argument'
    [ "$(asok $daemon 'version\n')" = "$invalid"$'\ninvalid json' ]
    [ "$(asok $daemon '{"prefix": "nope"}\n')" = "$invalid"$'\nunknown command prefix nope' ]
    [ "$(asok $daemon '\0\0\0\3')" = "$invalid"$'\nunknown command prefix foo' ]
    [ "$(asok $daemon '{"prefix": "config get"}\n')" = "$invalid"$'\ninvalid command json' ]
    [ "$(asok $daemon '{"prefix": "version", "format": "xml"}\n')" = \
        '<version><version>16.2.15</version><release>pacific</release><release_type>stable</release_type></version>' ]
done
[ "$(asok osd.0 '{"prefix": "1", "logger": "osd", "counter": "op"}\n' | jq -c 'map_values(keys)')" = '{"osd":["op"]}' ]
[ "$(asok osd.0 '{"prefix": "config get", "var": "nope"}\n')" = \
    "ERROR: (2) No such file or directory
error getting 'nope': (2) No such file or directory" ]

# Every command of Ceph's monitor is there: done, or refused with a reason.
for command in 'perf histogram dump' 'perf histogram schema'; do
    [ "$(ceph daemon mon.a $command | jq -c .)" = '{"cluster":{},"mon":{}}' ]
done
[ "$(ceph daemon mon.a perf dump mon num_sessions | jq -c 'map_values(keys)')" = '{"mon":["num_sessions"]}' ]
# What an OSD drops is counted by its reason: what its PGs drop, and what the daemon does.
for reason in peer_stale store_late to_down_osd to_gone_client misdirected; do
    ceph daemon osd.0 perf dump osd $reason | jq -e ".osd.$reason >= 0" >/dev/null
done
[ "$(ceph daemon mon.a log flush)" = '{}' ]
[ "$(ceph daemon mon.a add_bootstrap_peer_hint 127.0.0.1)" = 'mon already active; ignoring bootstrap hint' ]
[ "$(ceph daemon mon.a heap stats)" = 'ERROR: (95) Operation not supported
could not issue heap profiler command -- not using tcmalloc!' ]
for command in compact 'connection scores dump' dump_mempools 'log reopen' 'perf reset all' 'quorum exit' smart sync_force; do
    ceph daemon mon.a $command | grep '^ERROR: (95) Operation not supported' >/dev/null
done
# What daemons remember of themselves.
[ "$(ceph daemon osd.0 dump_transitions | jq -c '[keys, (.store | length > 0), ([.sessions[].transition] | any(startswith("established")))]')" = \
    '[["sessions","store"],true,true]' ]
[ "$(ceph daemon mon.a dump_transitions | jq '[.monitor[].transition] | any(test("changes (proposed|committed)"))')" = true ]

# Memory by the pools that Ceph's OSDs have, together, and what the process has besides.
ceph daemon osd.0 dump_mempools >mempools
[ "$(jq -c '[keys, (.mempool | keys), (.mempool.by_pool | length, .buffer_anon == {items: 0, bytes: 0} , (.osd_pglog | keys))]' mempools)" = \
    '[["mempool","process"],["by_pool","total"],29,false,["bytes","items"]]' ]
[ "$(jq '.mempool | .total.bytes == ([.by_pool[].bytes] | add) and .total.bytes > 500000' mempools)" = true ]
[ "$(jq '.process | .resident_bytes > .file_bytes and .file_bytes > 0 and .osd_memory_target == 134217728' mempools)" = true ]
[ "$(ceph tell osd.1 dump_mempools | jq -c '.mempool.by_pool.unittest_2')" = '{"items":0,"bytes":0}' ]
[ "$(ceph tell mon.a version -f xml)" = '<version><version>16.2.15</version><release>pacific</release><release_type>stable</release_type></version>' ]
