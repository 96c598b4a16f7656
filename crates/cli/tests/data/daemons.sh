# What daemons tell of themselves.

# Of each OSD all that an official one tells, if it is here. `created_at` and what is BlueStore's own are not.
keys=$(ceph osd metadata 0 | jq -c 'keys_unsorted - ["container_name", "container_image", "pod_name", "pod_namespace", "container_hostname"]
    - ["objectstore_numa_unknown_devices", "objectstore_numa_nodes", "objectstore_numa_node"]')
[ "$keys" = '["id","arch","back_addr","back_iface","bluestore_bdev_access_mode","bluestore_bdev_block_size","bluestore_bdev_devices","bluestore_bdev_path","bluestore_bdev_rotational","bluestore_bdev_size","bluestore_bdev_support_discard","bluestore_bdev_type","bluestore_min_alloc_size","ceph_release","ceph_version","ceph_version_short","cpu","default_device_class","device_ids","device_paths","devices","distro","distro_description","distro_version","front_addr","front_iface","hb_back_addr","hb_front_addr","hostname","journal_rotational","kernel_description","kernel_version","mem_swap_kb","mem_total_kb","network_numa_unknown_ifaces","os","osd_data","osd_objectstore","rotational"]' ] ||
    { echo "$keys" >&2; false; }
about() { ceph osd metadata 0 | jq -r ".$1"; }
[ "$(ceph osd metadata osd.0 | jq .id)" = 0 ]
[ "$(about hostname)" = "$(uname -n)" ]
[ "$(about kernel_version) $(about kernel_description) $(about arch)" = "$(uname -r) $(uname -v) $(uname -m)" ]
[ "$(about mem_total_kb)" = "$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo)" ]
[ "$(about distro_description)" = "$(. /etc/os-release && echo "$PRETTY_NAME")" ]
[ "$(about osd_data)" = "$PWD/osd.0" ]
[ "$(about bluestore_bdev_path)" = "$PWD/osd.0/block" ]
[ "$(about bluestore_bdev_size)" = "$(stat -c %s osd.0/block)" ]
# On the loopback interface, as in Ceph.
[ "$(about front_iface)$(about network_numa_unknown_ifaces)" = back_iface,front_iface ]
[ "$(ceph daemon osd.0 list_devices | jq -r 'map(.device | ltrimstr("/dev/")) | join(",")')" = "$(about devices)" ]
says 2 'osd.7 does not exist' ceph osd metadata 7
keys=$(ceph mon metadata a | jq -c 'keys_unsorted - ["container_name", "container_image", "pod_name", "pod_namespace", "container_hostname"]')
[ "$keys" = '["addrs","arch","ceph_release","ceph_version","ceph_version_short","compression_algorithms","cpu","device_ids","device_paths","devices","distro","distro_description","distro_version","hostname","kernel_description","kernel_version","mem_swap_kb","mem_total_kb","os"]' ]
says 2 'requested mon not found' ceph mon metadata z
[ "$(ceph mgr metadata | jq -c '.[0] | [.name, .hostname, .devices]')" = "[\"a\",\"$(uname -n)\",null]" ]
[ "$(ceph osd count-metadata hostname | jq -c .)" = "{\"$(uname -n)\":3}" ]
[ "$(ceph osd count-metadata id | jq -c .)" = '{"unknown":3}' ]
[ "$(ceph osd count-metadata nothing | jq -c .)" = '{"unknown":3}' ]
[ "$(ceph mon count-metadata os | jq -c .)" = '{"Linux":1}' ]
[ "$(ceph osd versions | jq -c 'to_entries[].value')" = 3 ]
