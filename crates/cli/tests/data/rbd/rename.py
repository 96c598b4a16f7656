# A journaled rename that stands still between its two journal entries keeps the lock that another client asks for.
# The directory of images is alone on an OSD that is stopped meanwhile.

import queue, signal, struct, subprocess
import rbd

POOL = 'n'
RELEASED_LOCK, REQUEST_LOCK = 1, 2
io = cluster.open_ioctx(POOL)


def osd(name, namespace=''):
    question = {'prefix': 'osd map', 'pool': POOL, 'object': name, 'nspace': namespace, 'format': 'json'}
    code, out, why = cluster.mon_command(json.dumps(question), b'')
    assert code == 0, why
    return json.loads(out)['acting_primary']


def first(template, among, is_right):
    return next(name for name in map(template.format, range(among)) if is_right(name))


# Clients read this one when they open an image.
running = osd('rbd_info')
stopped = 1 - running
namespace = first('ns{}', 1000, lambda ns: osd('rbd_directory', ns) == stopped)
old = first('old{}', 1000, lambda name: osd('rbd_id.' + name, namespace) == running)
new = first('new{}', 1000, lambda name: osd('rbd_id.' + name, namespace) == running)
rbd.RBD().namespace_create(io, namespace)
io.set_namespace(namespace)


def made():
    features = rbd.RBD_FEATURE_EXCLUSIVE_LOCK | rbd.RBD_FEATURE_JOURNALING
    rbd.RBD().create(io, old, 8 << 20, old_format=False, features=features)
    with rbd.Image(io, old) as image:
        id = image.id()
    entries = ['journal_data.%d.%s.%d' % (cluster.pool_lookup(POOL), id, n) for n in range(4)]
    if all(osd(name, namespace) == running for name in ['rbd_header.' + id, 'journal.' + id, *entries]):
        return id
    rbd.RBD().remove(io, old)
    return None


id = next(filter(None, iter(made, 0)))
said = queue.Queue()
watch = io.watch('rbd_header.' + id, lambda _notify, _from, _watch, data: said.put(data))


def heard(wanted, seconds):
    end = time.monotonic() + seconds
    while True:
        try:
            data = said.get(timeout=max(0, end - time.monotonic()))
        except queue.Empty:
            return False
        # The notification's kind is behind the header of a section.
        if len(data) >= 10 and struct.unpack_from('<I', data, 6) == (wanted,):
            return True


def write():
    with cluster.open_ioctx(POOL) as other:
        other.set_namespace(namespace)
        with rbd.Image(other, old) as image:
            image.write(b'written', 0)


def exists(name):
    try:
        return io.stat(name)
    except rados.ObjectNotFound:
        return None


pid = int(open('%s/osd.%d.pid' % (run, stopped)).read())
os.kill(pid, signal.SIGSTOP)
try:
    path = '%s/%s/' % (POOL, namespace)
    rename = subprocess.Popen([spirula, 'rbd', 'rename', path + old, path + new])
    while not exists('rbd_id.' + new):
        assert rename.poll() is None
        time.sleep(0.05)
    writer = threading.Thread(target=write)
    writer.start()
    assert heard(REQUEST_LOCK, 60), 'nobody asks for the lock'
    assert not heard(RELEASED_LOCK, 3), 'the lock was passed on'
    assert rename.poll() is None
finally:
    os.kill(pid, signal.SIGCONT)
assert rename.wait(60) == 0
assert heard(RELEASED_LOCK, 60), 'the lock is kept'
writer.join()
watch.close()
assert rbd.RBD().list(io) == [new]
with rbd.Image(io, new) as image:
    assert image.read(0, 7) == b'written'
