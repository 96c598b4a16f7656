#!/usr/bin/python3
"""What `kernel` runs in its namespaces: kernel-checks.py DIR SPIRULA kvm|tcg [CASE ...]

life:    an image as administrators use one: map, file system, snapshot, grow, trim, shrink, remove; by both kinds of connections.
verify:  fio's verified writes on mapped images, a clone and an image in a namespace among them, and through the kernel's client of NBD.
mapping: the official `rbd map`, `showmapped` and `unmap` and `spirula rbd` do and say the same, by the kernel's clients of RBD and NBD.
lock:    two kernels and librbd pass the exclusive lock of an image around.
killed:  the lock's owner dies: another kernel, then librbd, goes on. Both machines are gone after it.
boot:    a Debian boots from an image and writes files while snapshots are made and an OSD is killed, until it is killed itself.
"""
import base64
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import rados
import rbd

MIB = 1 << 20
HOST = '10.0.0.1'
MODES = 'prefer-crc', 'secure'
# Emulated processors are slow, and a lost OSD takes its time.
PATIENCE = 180

DIR, SPIRULA, ACCEL = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
CLUSTER = DIR / 'cluster'
CASES = {}
last_line = time.monotonic()


def case(run):
    CASES[run.__name__] = run
    return run


def passed(what):
    global last_line
    print(f'{what} ({time.monotonic() - last_line:.1f} s)', flush=True)
    last_line = time.monotonic()


def check(what, got, wanted):
    if got != wanted:
        raise SystemExit(f'FAILED {what}: {str(got)[:400]}, but {str(wanted)[:400]} was expected')


def host(*args, code=0):
    """Runs a command here, which must exit with `code`; what it says, or complains."""
    ran = subprocess.run([str(arg) for arg in args], capture_output=True, text=True)
    if ran.returncode != code:
        raise SystemExit(f'FAILED {" ".join(map(str, args))} exited with {ran.returncode}, not {code}: {ran.stdout[-2000:]}{ran.stderr}')
    return ran.stderr if code else ran.stdout


def digest(data):
    return hashlib.sha256(data).hexdigest()


def exported(image):
    """The digest of an image's content as librbd reads it."""
    ran = subprocess.run(['rbd', 'export', '--no-progress', image, '-'], stdout=subprocess.PIPE, check=True)
    return digest(ran.stdout)


class Guest:
    """A virtual machine that does what it is told by `kernel-guest`."""
    count = 0

    def __init__(self, name, drive):
        Guest.count += 1
        self.name, self.address, tap = name, f'10.0.0.{10 + Guest.count}', f'tap{Guest.count}'
        host('ip', 'tuntap', 'add', tap, 'mode', 'tap')
        host('ip', 'link', 'set', tap, 'master', 'bridge', 'up')
        self.console = DIR / f'{name}.console'
        self.process = subprocess.Popen(
            ['qemu-system-x86_64', '-accel', ACCEL, '-cpu', 'max', '-m', '512', '-nodefaults', '-display', 'none', '-no-reboot',
             '-kernel', DIR / 'vmlinuz', '-initrd', DIR / 'initrd.img',
             '-append', f'console=ttyS0 root=/dev/vda rw init=/guest net.ifnames=0 address={self.address}',
             '-drive', f'if=virtio,format=raw,{drive}',
             '-netdev', f'tap,id=net,ifname={tap},script=no,downscript=no',
             '-device', f'virtio-net-pci,netdev=net,mac=52:54:00:00:00:{Guest.count:02x}',
             '-chardev', 'stdio,id=commands,signal=off', '-serial', f'file:{self.console}', '-serial', 'chardev:commands'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.decode(errors='replace').rstrip('\r\n'))
        self.lines.put(None)

    def line(self):
        """The next line it says; None after its death."""
        try:
            return self.lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise SystemExit(f'FAILED {self.name} says nothing for {PATIENCE} s; its console is {self.console}') from None

    def ready(self, *setup):
        while self.line() != 'ready':
            check(f'{self.name} ended, see {self.console}', self.process.poll(), None)
        for script in setup:
            self.run(script)
        return self

    def start(self, script):
        self.process.stdin.write(base64.b64encode(script.encode()) + b'\n')
        self.process.stdin.flush()

    def run(self, script):
        """What a script says, which must succeed."""
        self.start(script)
        said = []
        while (line := self.line()) is not None and not line.startswith('=exit '):
            said.append(line)
        said = '\n'.join(said).strip()
        if line != '=exit 0':
            raise SystemExit(f'FAILED {self.name}: {script.strip()}\n{line or "died"}: {said[-2000:]}\n{self.console.read_text()[-1500:]}')
        return said

    def map(self, image, mode=MODES[0]):
        return self.run(f'rbd map -o ms_mode={mode} {image}')

    def digest(self, device):
        return self.run(f'dd if={device} bs=4M iflag=direct status=none | sha256sum').split()[0]

    def kill(self):
        """As a power cut: nothing is flushed, no connection is closed."""
        self.process.kill()
        self.process.wait()


def guest(name):
    """A machine with Ceph's tools, on a copy of the root file system that is forgotten."""
    conf, keyring = host('ceph', 'config', 'generate-minimal-conf'), host('ceph', 'auth', 'get', 'client.admin')
    return Guest(name, f'file={DIR}/root.img,snapshot=on').ready(
        f"cat >/etc/ceph/ceph.conf <<'END'\n{conf}\nEND", f"cat >/etc/ceph/ceph.client.admin.keyring <<'END'\n{keyring}\nEND")


@contextlib.contextmanager
def served(image, address):
    """An image as `spirula rbd serve` exports it."""
    with open(DIR / 'serve.log', 'a') as log:
        server = subprocess.Popen([SPIRULA, 'rbd', 'serve', image, '--listen', address], stdout=log, stderr=log)
    try:
        for _ in range(100):
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection((address, 10809)):
                break
            time.sleep(0.1)
        yield server
    finally:
        server.terminate()
        server.wait()


def pool_objects(prefix):
    return [name for name in host('rados', '-p', 'p', 'ls').split() if prefix in name]


@case
def life(a, _):
    live(a, 'prefer-crc', old=True)
    live(a, 'secure', old=False)


def live(a, mode, old):
    """`old`: with the features that guides of years ago tell to disable disabled."""
    name, image = f'life-{mode}', f'p/life-{mode}'
    host('rbd', 'create', '--size', '192M', image)
    if old:
        host('rbd', 'feature', 'disable', image, 'object-map', 'fast-diff', 'deep-flatten')
    device = a.map(image, mode)
    check('the name of the device', a.run(f'readlink -f /dev/rbd/{image}'), device)
    first = a.run(f'''
        mkfs.ext4 -q -b 4096 {device}
        mount {device} /mnt
        cd /mnt
        for n in 1 2 3; do head -c 2M /dev/urandom >$n; done
        sha256sum *[0-9]''')
    passed(f'life, {mode}: mapped, a file system made, files written')

    a.run('fsfreeze -f /mnt')
    host('rbd', 'snap', 'create', '--no-progress', f'{image}@old')
    a.run('fsfreeze -u /mnt')
    second = a.run('cd /mnt; head -c 2M /dev/urandom >2; rm 3; head -c 2M /dev/urandom >4; sync; sha256sum *[0-9]')
    snap = a.map(f'{image}@old', mode)
    check('the files of the snapshot', a.run(f'''
        test "$(blockdev --getro {snap})" = 1
        mount -o ro {snap} /media
        cd /media
        sha256sum *[0-9]'''), first)
    a.run(f'umount /media; rbd unmap {snap}')
    check('the files after it', a.run('cd /mnt; echo 3 >/proc/sys/vm/drop_caches; sha256sum *[0-9]'), second)
    passed(f'life, {mode}: a snapshot, mapped, holds the old files')

    def resized(size, *more):
        host('rbd', 'resize', '--no-progress', '--size', f'{size}M', *more, image)
        a.run(f'for n in $(seq 100); do test $(blockdev --getsize64 {device}) != {size * MIB} || exit 0; sleep 0.1; done; exit 1')

    def used():
        # Exact, as the kernel discards 4 MiB at a time from where a group's free blocks begin: it removes the ends of objects, and makes
        # their beginnings zeros that count as used, on Ceph as well.
        return json.loads(host('rbd', 'du', '--exact', '--format', 'json', image))['images'][-1]['used_size'] // MIB

    resized(320)
    a.run(f'''
        resize2fs {device} 2>&1
        test $(df -B1M --output=size /mnt | tail -1) -gt 250
        head -c 64M /dev/zero >/mnt/large
        sync''')
    passed(f'life, {mode}: grown while it is mounted')
    before = used()
    a.run('rm /mnt/large; sync; fstrim /mnt')
    after = used()
    check(f'less than {before} MiB are in use after fstrim of 64 MiB: {after}', before - after > 24, True)
    passed(f'life, {mode}: trimmed, {before} MiB in use and {after} afterwards')

    a.run(f'umount /mnt; e2fsck -fp {device}; resize2fs {device} 96M 2>&1')
    resized(96, '--allow-shrink')
    check('the files after shrinking', a.run(f'e2fsck -fn {device} >/dev/null 2>&1; mount {device} /mnt; cd /mnt; sha256sum *[0-9]'), second)
    passed(f'life, {mode}: shrunk')

    mapped = json.loads(a.run('rbd showmapped --format json'))
    check('what is mapped', [(m['pool'], m['name'], m['snap'], m['device']) for m in mapped], [('p', name, '-', device)])
    prefix = json.loads(host('rbd', 'info', '--format', 'json', image))['block_name_prefix']
    host('rbd', 'snap', 'purge', '--no-progress', image)
    said = host('rbd', 'rm', '--no-progress', image, code=16)
    check(f'"image still has watchers" in: {said}', 'rbd: error: image still has watchers' in said, True)
    check('the files after an attempt to remove', a.run('cd /mnt; echo 3 >/proc/sys/vm/drop_caches; sha256sum *[0-9]'), second)
    a.run('umount /mnt')
    content = a.digest(device)
    a.run(f'rbd unmap {device}')
    check('what librbd reads of the image', exported(image), content)
    if not old:
        host('rbd', 'object-map', 'check', '--no-progress', image)
    host('rbd', 'rm', '--no-progress', image)
    check('objects left', pool_objects(prefix.split('.')[1]), [])
    passed(f'life, {mode}: not removed while it is mapped, removed after it')


def fio(a, device, *options):
    said = a.run('fio --name=fio --direct=1 --ioengine=libaio --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0'
                 f' --output-format=json --filename={device} ' + ' '.join(options))
    return json.loads(said[said.index('{'):])['jobs'][0]['write']


def verified(a, device):
    """Random and sequential writes that fio reads again and compares; how fast."""
    small = fio(a, device, '--rw=randwrite --bs=4k --size=24M --io_size=8M --iodepth=16')
    large = fio(a, device, '--rw=write --bs=4M --offset=24M --size=40M --iodepth=4')
    return f'4 KiB at random {small["iops"]:.0f}/s, 4 MiB in sequence {large["bw_bytes"] / MIB:.0f} MiB/s'


@case
def verify(a, _):
    def unmapped(what, image, device):
        content = a.digest(device)
        a.run(f'rbd unmap {device}')
        check(f'what librbd reads of {what}', exported(image), content)
        return content

    for mode in MODES:
        host('rbd', 'create', '--size', '64M', f'p/{mode}')
        device = a.map(f'p/{mode}', mode)
        speed = verified(a, device)
        content = unmapped('the image', f'p/{mode}', device)
        passed(f'verify, {mode}: {speed}')

    parent = f'p/{MODES[-1]}'
    host('rbd', 'snap', 'create', '--no-progress', f'{parent}@s')
    host('rbd', 'snap', 'protect', f'{parent}@s')
    host('rbd', 'clone', f'{parent}@s', 'p/clone')
    device = a.map('p/clone')
    check('what a new clone holds', a.digest(device), content)
    fio(a, device, '--rw=randwrite --bs=4k --io_size=2M --iodepth=16')
    check('the clone is written', unmapped('the clone', 'p/clone', device) != content, True)
    check('the parent of a clone that was written', exported(f'{parent}@s'), content)
    passed('verify, a clone')

    host('rbd', 'namespace', 'create', 'p/space')
    host('rbd', 'create', '--size', '16M', 'p/space/image')
    device = a.map('p/space/image')
    fio(a, device, '--rw=randwrite --bs=4k --io_size=2M --iodepth=16')
    unmapped('the image in a namespace', 'p/space/image', device)
    passed('verify, an image in a namespace')

    host('rbd', 'create', '--size', '64M', 'p/nbd')
    with served('p/nbd', HOST):
        a.run(f'modprobe nbd; nbd-client -N p/nbd {HOST} /dev/nbd0')
        speed = verified(a, '/dev/nbd0')
        content = a.digest('/dev/nbd0')
        a.run('nbd-client -d /dev/nbd0')
    check('what librbd reads of the served image', exported('p/nbd'), content)
    passed(f'verify, NBD: {speed}')


def block(n):
    return f'{f"block {n}":>4096}'.encode()


class Kernel:
    """An image mapped by a guest, in blocks of 4 KiB."""

    def __init__(self, a, image):
        self.guest, self.name, self.address = a, a.name, a.address
        self.device = a.map(image)

    @staticmethod
    def writing(device, n, at):
        return f"printf '%4096s' 'block '{n} | dd of={device} bs=4k iflag=fullblock oflag=direct conv=notrunc seek={at} status=none"

    def write(self, n, at):
        self.guest.run(self.writing(self.device, n, at))

    def read(self, at, count):
        return self.guest.run(f'dd if={self.device} bs=4k iflag=direct skip={at} count={count} status=none | sha256sum').split()[0]

    def write_until_killed(self, seconds):
        """Writes block after block from the image's start; how many had been acknowledged when the machine was killed."""
        self.guest.start(f'n=0; while :; do {self.writing(self.device, "$n", "$n")}; n=$((n + 1)); echo $n; done')
        ends = time.monotonic() + seconds
        acknowledged = 0
        while time.monotonic() < ends:
            acknowledged = int(self.guest.line())
        self.guest.kill()
        # What it said before it died counts.
        while (line := self.guest.line()) is not None:
            acknowledged = int(line)
        return acknowledged


# What both tools do in turn as RBD, with TYPE as the kind of device; what is printed must be the same.
MAPPING = '''
try() { echo "\\$ $*"; $RBD "$@" 2>&1 || echo "exit $?"; }
# The same, and the device that is named.
mapped() { said=$(try "$@"); echo "$said"; device=$(tail -n 1 <<<"$said"); }
try device list -t $TYPE
try device list -t $TYPE --format json
try device list -t $TYPE --format xml --pretty-format

mapped map -t $TYPE p/one; one=$device
echo "$one" is "$(blockdev --getsize64 $one)" bytes, read-only $(blockdev --getro $one)
mkfs.ext4 -q -b 4096 $one
mount $one /mnt
for n in 1 2 3; do head -c 1M /dev/zero | tr '\\0' $n >/mnt/$n; done
umount /mnt
mapped device map -t $TYPE --pool p --namespace n two; two=$device
echo second | dd of=$two bs=512 conv=sync,fsync status=none
for format in plain json xml; do try showmapped -t $TYPE --format $format; done
try device ls -t $TYPE
try unmap -t $TYPE p/one
try unmap -t $TYPE $two
try showmapped -t $TYPE

mapped map -t $TYPE p/one; one=$device
mount $one /mnt
sha256sum /mnt/[123]
umount /mnt
try unmap -t $TYPE p/one
mapped map -t $TYPE p/n/two --exclusive; two=$device
dd if=$two bs=7 count=1 status=none
try unmap -t $TYPE p/n/two

mapped map -t $TYPE p/one@empty; snap=$device
echo read-only $(blockdev --getro $snap), $(tr -d '\\0' <$snap | wc -c) bytes
try showmapped -t $TYPE
try unmap -t $TYPE p/one@empty
mapped map -t $TYPE p/one --read-only; one=$device
echo read-only $(blockdev --getro $one)
dd if=/dev/zero of=$one bs=4096 count=1 oflag=direct status=none 2>&1 || echo not written
mount -o ro $one /mnt
cat /mnt/[123] | sha256sum
umount /mnt
try unmap -t $TYPE $one

try map -t $TYPE
try map -t $TYPE p/one more
try map -t ggate p/one
try map -t disk p/one
try unmap -t $TYPE p/one
try unmap -t $TYPE p/one@empty
'''

# The same of the kernel's RBD client alone.
MAPPING_BY_RBD = '''
try map -t krbd nowhere/one
try map -t krbd p/none
try map -t krbd p/one@none
try map -t krbd p/journaled
try map -t krbd p/one -o ms_mode=fast
try map -t krbd p/one -o queue_depth=
try map -t krbd p/one -o force
try map -t krbd p/one -o ms_mode=legacy
try unmap /dev/null
try unmap /dev/vda
try unmap -t krbd p/one -o hard
try unmap -t krbd
mapped map p/one -o queue_depth=16,lock_on_read; one=$device
readlink -f /dev/rbd/p/one
sed 's/^[^ ]* //; s/client[0-9]*//' /sys/bus/rbd/devices/${one#/dev/rbd}/config_info
cat /sys/block/${one#/dev/}/queue/nr_requests
try map p/one
try unmap p/one
mount /dev/rbd1 /mnt
try unmap /dev/rbd1
try unmap /dev/rbd1 -o force
umount /mnt
try showmapped
'''


# What `spirula rbd` does with NBD beyond the official tool, and what both do with each other's devices.
MAPPING_BY_NBD = '''
try() { echo "\\$ $*"; "$@" 2>&1 || echo "exit $?"; }
ours() { try spirula rbd "$@"; }
official() { try rbd "$@"; }
await() { for n in $(seq 100); do ! eval "$1" || return 0; sleep 0.1; done; echo "not in time: $1"; exit 1; }

official map -t nbd p/n/two
ours map -t nbd p/one
ours showmapped -t nbd
official showmapped -t nbd
mkfs.ext4 -q -b 4096 /dev/nbd1
mount /dev/nbd1 /mnt
ours unmap -t nbd p/one
ours unmap /dev/nbd1
kill $(cat /sys/block/nbd1/pid)
await 'dmesg | grep -q "nbd1 stays"'
head -c 1M /dev/zero | tr '\\0' 4 >/mnt/4
umount /mnt
ours unmap -t nbd p/n/two
official unmap -t nbd p/one
ours showmapped -t nbd

modprobe -r rbd
echo 'install rbd /bin/false' >/etc/modprobe.d/rbd.conf
ours map p/one
ours showmapped
mount /dev/nbd0 /mnt
sha256sum /mnt/4
pid=$(cat /sys/block/nbd0/pid)
spirula rbd resize --no-progress --size 128M p/one
await 'test $(blockdev --getsize64 /dev/nbd0) = $((128 << 20))'
resize2fs /dev/nbd0 >/dev/null 2>&1
test $(df -B1M --output=size /mnt | tail -n 1) -gt 100
sha256sum /mnt/4
umount /mnt
kill $pid
await 'test ! -e /proc/$pid'
ours showmapped
rm /etc/modprobe.d/rbd.conf

ours map p/one -t nbd -o device=/dev/nbd5,io-timeout=60,notrim
cat /sys/block/nbd5/queue/discard_max_bytes
ours map p/n/two -t nbd -o device=/dev/nbd5
ours map p/none -t nbd
ours map p/one@none -t nbd
ours map p/one -t nbd -o bogus
ours unmap /dev/nbd5
ours unmap -t nbd /dev/vda
'''
BY_NBD = '''
$ rbd map -t nbd p/n/two
/dev/nbd0
$ spirula rbd map -t nbd p/one
/dev/nbd1
$ spirula rbd showmapped -t nbd
id pool  namespace  image  snap  device     cookie
PID p     n          two    -     /dev/nbd0        
PID p                one    -     /dev/nbd1        
$ rbd showmapped -t nbd
id pool  namespace  image  snap  device     cookie
PID p     n          two    -     /dev/nbd0        
PID p                one    -     /dev/nbd1        
$ spirula rbd unmap -t nbd p/one
rbd-nbd: /dev/nbd1 is in use
rbd: unmap failed: (16) Device or resource busy
exit 16
$ spirula rbd unmap /dev/nbd1
rbd-nbd: /dev/nbd1 is in use
rbd: unmap failed: (16) Device or resource busy
exit 16
$ spirula rbd unmap -t nbd p/n/two
$ rbd unmap -t nbd p/one
$ spirula rbd showmapped -t nbd
$ spirula rbd map p/one
rbd: the kernel has no RBD client (modprobe: ERROR: could not insert 'rbd': Invalid argument), its NBD client is used
/dev/nbd0
$ spirula rbd showmapped
id pool  namespace  image  snap  device     cookie
PID p                one    -     /dev/nbd0        
21f6f696f79965ca70a854c39943120c57774d3b1d70e8f67b70b155384f5ccb  /mnt/4
21f6f696f79965ca70a854c39943120c57774d3b1d70e8f67b70b155384f5ccb  /mnt/4
$ spirula rbd showmapped
$ spirula rbd map p/one -t nbd -o device=/dev/nbd5,io-timeout=60,notrim
/dev/nbd5
0
$ spirula rbd map p/n/two -t nbd -o device=/dev/nbd5
rbd-nbd: the device /dev/nbd5 is busy
exit 22
$ spirula rbd map p/none -t nbd
rbd-nbd: error opening image p/none: (2) No such file or directory
exit 22
$ spirula rbd map p/one@none -t nbd
rbd-nbd: error opening image p/one@none: (2) No such file or directory
exit 22
$ spirula rbd map p/one -t nbd -o bogus
rbd-nbd: unrecognised option '--bogus'
exit 22
$ spirula rbd unmap /dev/nbd5
$ spirula rbd unmap -t nbd /dev/vda
rbd-nbd: invalid device path: /dev/vda (expected /dev/nbd{num})
exit 22
'''


def comparable(kind, said):
    """What tools say, without the ids of processes that serve."""
    if kind == 'nbd':
        said = re.sub(r'^\d+ +(?=p )', 'PID ', re.sub(r'^id +', 'id ', said, flags=re.M), flags=re.M)
        said = re.sub(r'"id":\d+', '"id":PID', said)
        said = re.sub(r'<id>\d+</id>', '<id>PID</id>', said)
        # The official one ends no line of JSON and XML here, and says of each failure that another tool has failed.
        said = re.sub(r'([]>])\$ ', r'\1\n$ ', said)
        said = re.sub(r'^rbd: rbd-nbd failed .*\n', '', said, flags=re.M)
    # The official tool ends indented XML with a line more.
    return [line for line in said.splitlines() if line]


def images_to_map():
    for image, *more in ('one', '--size', '64M'), ('n/two', '--size', '1G'), ('journaled', '--size', '1M', '--image-feature', 'exclusive-lock,journaling'):
        host('rbd', 'create', f'p/{image}', *more)
    host('rbd', 'snap', 'create', '--no-progress', 'p/one@empty')


def images_mapped():
    for image in 'one', 'n/two', 'journaled':
        host('rbd', 'snap', 'purge', '--no-progress', f'p/{image}')
        host('rbd', 'rm', '--no-progress', f'p/{image}')


@case
def mapping(a, _):
    host('rbd', 'namespace', 'create', 'p/n')
    # The official tool would take the first version of the messenger otherwise, which is not spoken here.
    a.run("printf '[client]\\nrbd_default_map_options = ms_mode=prefer-crc\\n' >>/etc/ceph/ceph.conf")
    for kind, script in ('krbd', MAPPING + MAPPING_BY_RBD), ('nbd', MAPPING):
        said = []
        for tool in 'rbd', 'spirula rbd':
            images_to_map()
            said.append(comparable(kind, a.run(f"RBD='{tool}'; TYPE={kind}\n{script}")))
            images_mapped()
        for official, ours in itertools.zip_longest(*said):
            check('what both tools say', ours, official)
        passed(f'mapping, {kind}: {len(said[0])} lines are the same')
    images_to_map()
    for said, wanted in itertools.zip_longest(comparable('nbd', a.run(MAPPING_BY_NBD)), BY_NBD.strip().splitlines()):
        check('what is said of NBD', said, wanted)
    images_mapped()
    passed('mapping, nbd: devices of both tools, in use, grown, without a client of RBD')


class Library:
    """The same image as librbd sees it."""
    name, address = 'librbd', HOST

    def __init__(self, cluster, image):
        self.image = rbd.Image(cluster.open_ioctx('p'), image)

    def write(self, n, at):
        self.image.write(block(n), at * 4096)

    def read(self, at, count):
        return digest(self.image.read(at * 4096, count * 4096))


@contextlib.contextmanager
def sharing(image, *guests):
    """Several clients with one image."""
    host('rbd', 'create', '--size', '64M', f'p/{image}')
    # Others write what the library might hold in its cache.
    with rados.Rados(conffile=os.environ['CEPH_CONF'], conf={'rbd_cache': 'false'}) as cluster:
        library = Library(cluster, image)
        try:
            yield [Kernel(a, f'p/{image}') for a in guests] + [library]
        finally:
            library.image.close()


def owner(image):
    return [held['address'].split(':')[0] for held in json.loads(host('rbd', 'lock', 'ls', '--format', 'json', f'p/{image}'))]


@case
def lock(a, b):
    rounds = 18
    with sharing('lock', a, b) as clients:
        for n in range(rounds):
            writer = clients[n % 3] if n < rounds / 2 else clients[2 - n % 3]
            writer.write(n, n)
            check(f'owner after pass {n} to {writer.name}', owner('lock'), [writer.address])
            for client in clients:
                check(f'what {client.name} reads after pass {n}', client.read(n, 1), digest(block(n)))
        wanted = digest(b''.join(map(block, range(rounds))))
        for client in clients:
            check(f'what {client.name} reads in the end', client.read(0, rounds), wanted)
        for client in clients[:2]:
            client.guest.run(f'rbd unmap {client.device}')
    passed(f'lock: passed {rounds} times between two kernels and librbd')


@case
def killed(a, b):
    with sharing('killed', a, b) as clients:
        for dying, heir in zip(clients, clients[1:]):
            count = dying.write_until_killed(5)
            held = json.loads(host('rbd', 'lock', 'ls', '--format', 'json', 'p/killed'))[0]['address']
            check('the owner that was killed', held.split(':')[0], dying.address)
            began = time.monotonic()
            heir.write(1, 8000)
            took = time.monotonic() - began
            check(f'{heir.name} has the lock', owner('killed'), [heir.address])
            check('the dead owner is shut out', held in host('ceph', 'osd', 'blocklist', 'ls'), True)
            check(f'what was acknowledged to {dying.name}', heir.read(0, count), digest(b''.join(map(block, range(count)))))
            check('what its heir wrote', heir.read(8000, 1), digest(block(1)))
            check(f'{heir.name} goes on within 45 s, {took:.1f} s', took < 45, True)
            passed(f'killed: {dying.name} after {count} writes; {heir.name} goes on after {took:.1f} s')


def content(n):
    return f'{f"file {n}":>16384}'.encode()


def write_files(machine, image):
    """Has a machine write files and sync each, makes two snapshots of its image and kills an OSD meanwhile, then the machine. How many were
    synced before each snapshot was asked for, and in the end."""
    machine.start('''mkdir /files
        n=0
        while :; do
            n=$((n + 1))
            printf '%16384s' "file $n" >/files/$n
            sync /files/$n /files
            echo $n
        done''')
    synced, snapshots, holds = 0, [], {}
    began = time.monotonic()

    def snapshot(name):
        holds[f'{image}@{name}'] = synced
        snapshots.append(subprocess.Popen(['rbd', 'snap', 'create', '--no-progress', f'{image}@{name}']))

    def kill_osd():
        os.kill(int((CLUSTER / 'run/osd.1.pid').read_text()), signal.SIGKILL)

    for at, event in (3, lambda: snapshot('quiet')), (6, kill_osd), (6, lambda: snapshot('troubled')), (14, machine.kill):
        while time.monotonic() - began < at:
            synced = int(machine.line())
        event()
    while (line := machine.line()) is not None:
        synced = int(line)
    check('snapshots are made', [made.wait() for made in snapshots], [0, 0])
    check('files are synced after the death of an OSD', synced > holds[f'{image}@troubled'], True)
    check('OSDs that are up', json.loads(host('ceph', 'osd', 'stat', '--format', 'json'))['num_up_osds'], 3)
    return {**holds, image: synced}


def compare_files(image, count):
    """Checks the file system on an image after its journal is replayed, and the files on it."""
    disk, files = DIR / 'exported', DIR / 'files'
    host('rbd', 'export', '--no-progress', image, disk)
    host('e2fsck', '-y', '-E', 'journal_only', disk)
    host('e2fsck', '-fn', disk)
    host('debugfs', '-R', f'rdump /files {DIR}', disk)
    for n in range(1, count + 1):
        file = files / str(n)
        check(f'file {n} of {count} on {image}', file.read_bytes() if file.exists() else None, content(n))
    there = len(list(files.iterdir()))
    shutil.rmtree(files)
    disk.unlink()
    return there


@case
def boot(*_):
    host('rbd', 'import', '--no-progress', DIR / 'root.img', 'p/debian')
    host('rbd', 'snap', 'create', '--no-progress', 'p/debian@new')
    host('rbd', 'snap', 'protect', 'p/debian@new')
    host('rbd', 'clone', 'p/debian@new', 'p/served')
    passed('boot: imported')

    def judge(driver, image, drive, and_kill=()):
        machine = Guest(driver, drive).ready()
        passed(f'boot, {driver}: up')
        holds = write_files(machine, image)
        for process in and_kill:
            process.kill()
        there = [f'{compare_files(image, count)} of {count} at least' for image, count in holds.items()]
        passed(f'boot, {driver}: clean, with every file that was synced: {"; ".join(there)}')

    judge('rbd', 'p/debian', f'file=rbd:p/debian:conf={CLUSTER}/ceph.conf')
    with served('p/served', '127.0.0.1') as server:
        judge('nbd', 'p/served', 'file=nbd://127.0.0.1/p/served', [server])


def main():
    chosen = sys.argv[4:] or CASES
    unknown = [name for name in chosen if name not in CASES]
    if unknown:
        raise SystemExit(f'no such case: {unknown[0]}; there are {", ".join(CASES)}')
    host('ip', 'link', 'set', 'lo', 'up')
    host('ip', 'link', 'add', 'bridge', 'type', 'bridge')
    host('ip', 'addr', 'add', f'{HOST}/24', 'dev', 'bridge')
    host('ip', 'link', 'set', 'bridge', 'up')
    os.environ['CEPH_CONF'] = str(CLUSTER / 'ceph.conf')
    host(SPIRULA, 'up', '--detach', '--bind', HOST, '--dir', CLUSTER)
    try:
        code = os.environ.get('CODE', '').split()
        if code:
            host('ceph', 'osd', 'erasure-code-profile', 'set', 'code', *code, 'crush-failure-domain=osd')
        host('ceph', 'osd', 'pool', 'create', 'p', '8', '8', *(['erasure', 'code'] if code else []))
        host('rbd', 'pool', 'init', 'p')
        began = time.monotonic()
        a, b = guest('a'), guest('b')
        passed(f'two machines are up, by {ACCEL}: Linux {a.run("uname -r")}')
        for name, run in CASES.items():
            if name in chosen:
                run(a, b)
        print(f'passed: {time.monotonic() - began:.0f} s')
    finally:
        host(SPIRULA, 'down', '--dir', CLUSTER)


if __name__ == '__main__':
    main()
