"""Ceph's gateway on a cluster, and the calls that the judges make through it."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import boto3
import botocore.client

# Nothing happens by itself: what a gateway does at times of its own is asked for with `radosgw-admin`.
STILL = {
    'rgw_enable_gc_threads': 'false',
    'rgw_enable_lc_threads': 'false',
    'rgw_enable_quota_threads': 'false',
    'rgw_dynamic_resharding': 'false',
    'rgw_run_sync_thread': 'false',
}


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Gateway:
    """A `radosgw` in a process. Its configuration is the cluster's and OPTIONS; its files are in DIRECTORY."""

    def __init__(self, conf, directory, options=None, port=None):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.name = f'client.rgw.j{self.port}'
        self.conf = str(self.directory / 'ceph.conf')
        self.process = None
        self.starting = threading.Lock()
        self.options = dict(options or {})
        self.cluster_conf = conf
        self.configure()
        subprocess.run(['ceph', '--conf', conf, 'auth', 'get-or-create', self.name, 'mon', 'allow rw', 'mgr', 'allow rw', 'osd',
                        'allow rwx', '-o', str(self.directory / 'keyring')], check=True)

    def configure(self, **options):
        """Writes the configuration, with some options more."""
        self.options.update(options)
        common = ''.join(f'{name} = {value}\n' for name, value in self.options.items())
        at = self.directory
        pathlib.Path(self.conf).write_text(f'''{pathlib.Path(self.cluster_conf).read_text()}
[client]
rgw_data = {at}/data
admin_socket = {at}/$name.$pid.asok
{common}
[{self.name}]
keyring = {at}/keyring
rgw_frontends = beast endpoint=127.0.0.1:{self.port}
log_file = {at}/log
admin_socket = {at}/asok
pid_file = {at}/pid
debug_rgw = {os.environ.get('DEBUG_RGW', '1')}
debug_ms = {os.environ.get('DEBUG_MS', '0')}
''')

    def start(self):
        # A socket's address that a killed gateway left is refused for a moment: hence more than one start.
        with self.starting:
            for _ in range(5):
                with open(self.directory / 'said', 'ab') as said:
                    self.process = subprocess.Popen(['radosgw', '-f', '-n', self.name, '--conf', self.conf], stdout=said, stderr=said)
                if self.listens(120):
                    return
        raise SystemExit(f'the gateway does not start: {self.directory}/log, {self.directory}/said')

    def listens(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                socket.create_connection(('127.0.0.1', self.port), 1).close()
                return True
            except OSError:
                time.sleep(0.1)
        return False

    def stop(self, how=signal.SIGTERM):
        with self.starting:
            if self.process is None:
                return
            self.process.send_signal(how)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def restart(self, how=signal.SIGTERM):
        self.stop(how)
        self.start()

    @property
    def url(self):
        return f'http://127.0.0.1:{self.port}'

    def client(self, keys=('AK', 'SK'), service='s3', attempts=1, timeout=120, **config):
        """A client of boto3. Without ATTEMPTS nothing is asked twice."""
        config = botocore.client.Config(retries={'max_attempts': attempts - 1}, read_timeout=timeout, connect_timeout=10,
                                        s3={'addressing_style': 'path'}, max_pool_connections=20, **config)
        return boto3.session.Session().client(service, endpoint_url=self.url, aws_access_key_id=keys[0],
                                              aws_secret_access_key=keys[1], region_name='default', config=config)

    def run(self, *command, stdin=None, timeout=300):
        return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, text=True,
                              errors='surrogateescape', check=False)

    def admin(self, command, *args, stdin=None):
        """Runs `radosgw-admin` with the words of COMMAND and ARGS."""
        return self.run('radosgw-admin', '--conf', self.conf, *command.split(), *args, stdin=stdin)

    def json(self, command, *args, stdin=None):
        """What `radosgw-admin` answers to a command that must succeed."""
        done = self.admin(command, *args, stdin=stdin)
        if done.returncode:
            raise RuntimeError(f'radosgw-admin {command} {args}: {done.returncode} {done.stdout}{done.stderr}')
        return json.loads(done.stdout, strict=False) if done.stdout.strip() else None

    def ceph(self, *args):
        done = self.run('ceph', '--conf', self.cluster_conf, *args)
        if done.returncode:
            raise RuntimeError(f'ceph {args}: {done.stderr}')
        return done.stdout

    def rados(self, *args):
        return self.run('rados', '--conf', self.cluster_conf, *args)


def peaks(conf):
    """The most memory that each OSD has had so far, in MiB, by pid files beside the configuration or in `run`."""
    found = {}
    for path in sorted(pathlib.Path(conf).parent.glob('run/*osd.*.pid')):
        try:
            status = pathlib.Path(f'/proc/{path.read_text().strip()}/status').read_text()
        except OSError:
            continue
        found[path.stem] = int(status.split('VmHWM:')[1].split()[0]) >> 10
    return found
