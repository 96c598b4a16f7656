"""Clients that ask for more than their keys are for: each is refused, and what the keys are for works."""
import errno, json, os, rados, subprocess, sys

conf = os.environ["CEPH_CONF"]

def ceph(*args):
    return subprocess.run(["ceph", *args], capture_output=True, text=True, check=True).stdout

def connect(entity):
    key = ceph("auth", "get-key", entity)
    r = rados.Rados(conffile=conf, name=entity, conf={"key": key, "keyring": "/dev/null"})
    r.connect()
    return r

def ask(r, command, raw=None, target=None, osd=None):
    """The errno of a command, 0 for success."""
    text = raw or json.dumps(command)
    if osd is not None:
        code, _, _ = r.osd_command(osd, text, b"")
    elif target is not None:
        code, _, _ = r.mon_command(text, b"", target=target)
    else:
        code, _, _ = r.mon_command(text, b"")
    return -code

def refused(what, code):
    assert code in (errno.EACCES, errno.EINVAL, errno.EPERM), (what, code)

def bootstrap_keys():
    admin = ["mon", "allow *", "osd", "allow *", "mds", "allow *", "mgr", "allow *"]
    honest = {
        "mds": ("mds.x", ["mon", "allow profile mds", "osd", "allow rwx", "mds", "allow"]),
        "mgr": ("mgr.x", ["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"]),
        "rgw": ("client.rgw.x", ["mon", "allow rw", "osd", "allow rwx"]),
        "rbd": ("client.x", ["mon", "profile rbd", "osd", "profile rbd pool=p"]),
        "rbd-mirror": ("client.y", ["mon", "profile rbd-mirror", "osd", "profile rbd"]),
    }
    for kind, (entity, caps) in honest.items():
        r = connect(f"client.bootstrap-{kind}")
        says = {f"caps_{s}": c for s, c in zip(caps[::2], caps[1::2])}
        create = {"prefix": "auth get-or-create", "entity": entity}
        for lie in (admin, caps + ["mgr", "allow *"], caps + ["osd", "allow *"]):
            refused((kind, lie), ask(r, create | {"caps": lie} | says))
            refused((kind, lie), ask(r, create | {"caps": lie}))
        if "rbd" in kind:
            evil = ["mon", caps[1], "osd", "profile rbd pool=p;allow *"]
            refused((kind, evil), ask(r, create | {"caps": evil}))
        assert entity not in ceph("auth", "ls"), kind
        assert ask(r, create | {"caps": caps}) == 0 and ask(r, create | {"caps": caps}) == 0, kind
        r.shutdown()

def daemons_options():
    ceph("auth", "get-or-create", "client.reader", "mon", "allow r", "osd", "allow rw pool=p", "mgr", "allow r")
    ceph("auth", "get-or-create", "client.writer", "mon", "allow r", "osd", "allow rwx")
    admin, reader, writer = connect("client.admin"), connect("client.reader"), connect("client.writer")
    inject = {"prefix": "injectargs", "injected_args": ["--osd_max_backfills=7"]}
    for command in (inject, {"prefix": "config unset", "var": "osd_max_backfills"},
                    {"prefix": "config set", "var": "osd_max_backfills", "val": ["7"]}, {"prefix": "config show"}):
        for r in (reader, writer):
            refused(command, ask(r, command, target="a"))
            refused(command, ask(r, command, osd=0))
    assert ask(reader, {"prefix": "mon_status"}, target="a") == 0
    assert ask(admin, inject, target="a") == 0 and ask(admin, inject, osd=0) == 0
    [r.shutdown() for r in (admin, reader, writer)]

def blocklist():
    r = connect("client.x")
    osd = json.loads(ceph("osd", "dump", "-f", "json"))["osds"][0]["public_addrs"]["addrvec"][0]
    add = {"prefix": "osd blocklist", "blocklistop": "add"}
    for lie in (add | {"addr": f"{osd['addr']}/{osd['nonce']}"}, add | {"addr": "127.0.0.1:0/0"},
                add | {"addr": "127.0.0.1:0/8", "range": "range"},
                {"prefix": "osd blacklist", "blacklistop": "add", "range": "range", "addr": "127.0.0.1:0/8"}):
        refused(lie, ask(r, lie))
    assert ask(r, add | {"addr": "127.0.0.1:0/123456"}) == 0
    assert [e["addr"] for e in json.loads(ceph("osd", "blocklist", "ls", "-f", "json"))] == ["127.0.0.1:0/123456"]
    r.shutdown()

def audit():
    """What is denied is logged short and seldom; a command's text forges nothing and hides nothing."""
    store = os.path.join(os.path.dirname(conf), "mon.a", "store.db")
    before, reader, admin = os.path.getsize(store), connect("client.reader"), connect("client.admin")
    for _ in range(60):
        refused("", ask(reader, {"prefix": "osd pool rm", "pool": "x" * (1 << 20)}))
    text = '{"prefix":"config set","who":"global","name":"osd_max_backfills","value":"2"}'
    assert ask(admin, None, raw=text + "\n2026 mon.a (mon.0) 1 : audit [INF] from='forged'") == 0
    assert ask(admin, {"prefix": "osd pool create", "pool": "key"}) == 0
    log = ceph("log", "last", "200", "debug", "audit")
    assert log.count("access denied") <= 30 and max(map(len, log.splitlines())) < 2000, len(log)
    assert "forged" not in log and '"pool":"key"' in log and '"name":"osd_max_backfills"' in log, log[-2000:]
    assert os.path.getsize(store) - before < 24 << 20, os.path.getsize(store) - before
    [r.shutdown() for r in (reader, admin)]

def services():
    r = connect("client.reader")
    r.service_daemon_register("gateway", "evil", {"x": "y"})
    allowed = connect("client.y")
    allowed.service_daemon_register("rbd-mirror", "honest", {"x": "y"})
    for _ in range(200):
        found = json.loads(ceph("service", "dump"))["services"]
        if found:
            break
    assert list(found) == ["rbd-mirror"], found
    [r.shutdown() for r in (r, allowed)]

ceph("osd", "pool", "create", "p", "8")
for check in (bootstrap_keys, daemons_options, blocklist, audit, services):
    if len(sys.argv) < 2 or check.__name__ in sys.argv[1:]:
        check()
