"""The two clusters that the benchmarks measure: Debian's Ceph, and Spirula."""

import os
import shutil
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def sh(*argv, env, check=True, **kw):
    done = subprocess.run(argv, env=env, text=True, capture_output=True, **kw)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(argv)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def clear(path):
    """Removes a cluster's files and lets the disk come to rest: what a file system discards meanwhile slows the next one down."""
    shutil.rmtree(path, ignore_errors=True)
    os.sync()
    time.sleep(8)


class Cluster:
    """A cluster of some OSDs and monitors in a directory on this machine; `env` is the environment of its clients."""

    def __init__(self, work, osd_gib, spirula, osds=3, mons=1):
        self.dir = os.path.join(work, self.name)
        self.osd_gib, self.osds, self.mons = str(osd_gib), str(osds), str(mons)
        self.bin = spirula
        self.env = dict(os.environ, CEPH_CONF=f"{self.dir}/ceph.conf")
        # The process of a Ceph gateway, if one was started.
        self.gateway = None

    def pid(self, daemon):
        with open(f"{self.dir}/run/{daemon}.pid", encoding="ascii") as f:
            return int(f.read())

    def kill(self, daemon):
        """As the power of its machine would: `kill -9`."""
        os.kill(self.pid(daemon), signal.SIGKILL)


class Ceph(Cluster):
    name = "ceph"
    address = "127.0.0.1"

    def up(self):
        sh("bash", f"{HERE}/peer_ceph.sh", "up", self.dir, self.osds, self.osd_gib, self.mons, env=os.environ)

    def start(self, daemon):
        kind, name = daemon.split(".")
        subprocess.run([f"ceph-{kind}", "-i", name], env=self.env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def down(self):
        sh("bash", f"{HERE}/peer_ceph.sh", "down", self.dir, env=os.environ)


class Spirula(Cluster):
    name = "spirula"
    # Where its daemons listen: both clusters are up at once.
    address = "127.0.0.2"
    # What `up` is told besides.
    options = ()

    def up(self):
        # Its output may not be a pipe that the daemons keep open.
        subprocess.run([self.bin, "up", "--detach", "--no-respawn", "--dir", self.dir, "--osd-size", f"{self.osd_gib}G", "--osds", self.osds,
                        "--mons", self.mons, "--bind", self.address, *self.options], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self, _daemon):
        # Starts what does not run, and returns when all is well again, or not.
        subprocess.Popen([self.bin, "up", "--detach", "--no-respawn", "--dir", self.dir], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def down(self):
        sh(self.bin, "down", "--dir", self.dir, env=os.environ)


class Before(Spirula):
    """An earlier build of Spirula, for what a change costs."""
    name = "before"
    address = "127.0.0.3"


class Plain(Spirula):
    """This build with stores as they are without options, for what an option costs."""
    name = "plain"
    address = "127.0.0.3"


class Encrypted(Spirula):
    """This build with encrypted stores."""
    options = ("--encrypt",)
