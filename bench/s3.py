"""The rows of S3: curl, through a Ceph gateway of each cluster. The gateway works as much as the OSDs or more: the ratio is what its users
notice, and the OSDs' time per request is what differs."""

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request

from clusters import sh

POOL = "s3"
PORT = 7480
KEY, SECRET = "bench", "secret"
KIB, MIB = 1 << 10, 1 << 20
# The bucket whose objects are read and listed, and the one that is written to.
READ, WRITTEN = "read", "written"
PUT, GET, DELETE, LIST = "PUT", "GET", "DELETE", "LIST"
# case, method, size of the objects, requests, requests at once, the bar (ratio to Ceph 16.2)
ROWS = [
    ("put 64 KiB, 1", PUT, 64 * KIB, 1000, 1, 2),
    ("put 64 KiB, 16", PUT, 64 * KIB, 4000, 16, 2),
    ("put 8 MiB, 4", PUT, 8 * MIB, 60, 4, 2),
    ("get 64 KiB, 1", GET, 64 * KIB, 4000, 1, 1),
    ("get 64 KiB, 16", GET, 64 * KIB, 4000, 16, 1),
    ("get 8 MiB, 4", GET, 8 * MIB, 60, 4, 1),
    ("list 1,000, 1", LIST, 64 * KIB, 200, 1, 1),
    ("delete 64 KiB, 1", DELETE, 64 * KIB, 1000, 1, 2),
    ("delete 64 KiB, 16", DELETE, 64 * KIB, 4000, 16, 2),
]
# Objects that are read and listed, by their size.
READ_OBJECTS = {64 * KIB: 4000, 8 * MIB: 60}


def is_installed():
    return bool(shutil.which("radosgw") and shutil.which("curl"))


def gateway(cluster, work):
    """Starts the gateway of a cluster, with a user and what is read; once."""
    if cluster.gateway:
        return
    name, url = f"{cluster.dir}/run/rgw", f"http://{cluster.address}:{PORT}"
    # Of the client's commands.
    cluster.env["S3"] = url
    sh("ceph", "auth", "get-or-create", "client.rgw", "mon", "allow rw", "mgr", "allow rw", "osd", "allow rwx", "-o", f"{name}.keyring", env=cluster.env)
    cluster.gateway = subprocess.Popen(
        ["radosgw", "-f", "-n", "client.rgw", "--keyring", f"{name}.keyring", "--log-file", f"{name}.log", "--admin-socket", f"{name}.asok",
         "--pid-file", f"{name}.pid", "--rgw-frontends", f"beast endpoint={cluster.address}:{PORT} tcp_nodelay=1"],
        env=cluster.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until_it_answers(url)
    sh("radosgw-admin", "user", "create", f"--uid={KEY}", f"--display-name={KEY}", f"--access-key={KEY}", f"--secret-key={SECRET}", env=cluster.env)
    for bucket in (READ, WRITTEN):
        sh(*curl("-X", "PUT", f"{url}/{bucket}"), env=cluster.env)
    for size, count in READ_OBJECTS.items():
        body = body_of(size, work)
        if not os.path.exists(body):
            with open(body, "wb") as f:
                f.write(os.urandom(size))
        sh("sh", "-c", requests(PUT, READ, size, count, 4, work), env=cluster.env)


def body_of(size, work):
    return f"{work}/body-{size}"


def until_it_answers(url):
    for _ in range(600):
        try:
            urllib.request.urlopen(url)
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"no gateway at {url}")


def curl(*argv):
    return ["curl", "-sS", "--fail-early", "--fail", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{KEY}:{SECRET}",
            "-H", "x-amz-content-sha256:UNSIGNED-PAYLOAD", *argv]


def requests(method, bucket, size, count, at_once, work):
    """A command line of the shell that makes requests of the gateway $S3 and prints the seconds that each took."""
    how = {PUT: ["-T", body_of(size, work)], GET: [], LIST: [], DELETE: ["-X", "DELETE"]}[method]
    what = f"?list-type=2&max-keys=1000&prefix={64 * KIB}&x=[1-{count}]" if method == LIST else f"/{size}-[1-{count}]"
    words = " ".join(f"'{word}'" for word in curl(*how, "-o", "/dev/null", "-w", r"%{time_total}\n"))
    return f"exec {words} -Z --parallel-max {at_once} \"$S3/{bucket}{what}\" 2>/dev/null"


def command(method, size, count, at_once, work):
    """The command of a row: it prints the seconds of each request, and last those of all."""
    bucket = READ if method in (GET, LIST) else WRITTEN
    return ["bash", "-c", f"t=$EPOCHREALTIME; ({requests(method, bucket, size, count, at_once, work)}) || exit 1; "
                          "echo $(awk -v a=$t -v b=$EPOCHREALTIME 'BEGIN { print b - a }')"]


def before(cluster, method, size, count, work):
    """What is deleted has to be there."""
    if method == DELETE:
        sh("sh", "-c", requests(PUT, WRITTEN, size, count, 16, work), env=cluster.env)


def after(cluster, method, size, count, work):
    """What was written goes, tails of large objects too."""
    if method == PUT:
        sh("sh", "-c", requests(DELETE, WRITTEN, size, count, 16, work), env=cluster.env)
        sh("radosgw-admin", "gc", "process", "--include-all", env=cluster.env)


def line(text, size):
    """The lines of `command`."""
    *times, seconds = map(float, text.split())
    rate = len(times) / seconds
    large = size >= MIB
    return {"rate": rate * size / 1e6 if large else rate, "unit": "MB/s" if large else "op/s", "iops": rate,
            "avg_ms": sum(times) / len(times) * 1e3, "max_ms": max(times) * 1e3, "ops": len(times)}
