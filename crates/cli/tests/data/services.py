"""Daemons of a service, by librados: they register, report, are found by the next manager, and go."""
import json, os, rados, subprocess, time

def ceph(*args):
    return subprocess.run(["ceph", *args], capture_output=True, text=True, check=True).stdout

def until(what, is_so):
    for _ in range(300):
        if is_so():
            return
        time.sleep(0.1)
    raise SystemExit(f"{what}: {ceph('service', 'dump')} {ceph('service', 'status')}")

def daemons():
    services = json.loads(ceph("service", "dump"))["services"]
    return {s: [d for d in v["daemons"] if d != "summary"] for s, v in services.items()}

def connect():
    r = rados.Rados(conffile=os.environ["CEPH_CONF"])
    r.connect()
    return r

empty = json.loads(ceph("service", "dump"))
assert empty["services"] == {} and empty["epoch"] == 1, empty
a, b = connect(), connect()
a.service_daemon_register("gateway", "one", {"zone_id": "z"})
b.service_daemon_register("gateway", "two", {"daemon_type": "portal"})
until("registered", lambda: daemons() == {"gateway": ["one", "two"]})
one = json.loads(ceph("service", "dump"))["services"]["gateway"]["daemons"]["one"]
assert one["gid"] == a.get_instance_id() and one["metadata"]["zone_id"] == "z", one
assert one["addr"] in a.get_addrs(), (one, a.get_addrs())
lines = [l for l in ceph("-s").splitlines() if "portal" in l or "mon:" in l]
assert lines[0].startswith("    mon:     1 daemons") and lines[1] == "    gateway: 2 portals active (1 hosts, 1 zones)", lines
assert list(json.loads(ceph("versions"))) == ["mon", "mgr", "osd", "mds", "gateway", "overall"]
assert json.loads(ceph("-s", "-f", "json"))["servicemap"]["services"].keys() == {"gateway"}

a.service_daemon_update({"state": "busy"})
def status():
    return json.loads(ceph("service", "status")).get("gateway", {}).get("one", {}).get("status")
until("reported", lambda: status() == {"state": "busy"})

# The next manager hears of them again; one that ends is out at once, one that is silent when the grace is over.
ceph("mgr", "fail")
until("registered again", lambda: status() == {"state": "busy"})
a.shutdown()
until("ended", lambda: daemons() == {"gateway": ["two"]})
b.service_daemon_update({})
ceph("config", "set", "mon", "mgr_service_beacon_grace", "1")
until("silent", lambda: daemons() == {})
ceph("config", "set", "mon", "mgr_service_beacon_grace", "60")
until("heard again", lambda: daemons() == {"gateway": ["two"]})
