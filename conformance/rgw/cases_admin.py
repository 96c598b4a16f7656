"""Cases: what an administrator does, and what a gateway does for itself."""
import hashlib
import hmac
import http.server
import json
import struct
import threading
import time

import botocore.exceptions

from talk import body, case

MIB = 1 << 20
USER = ('--uid', 'judge')


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.5)
    return False


@case
def users(t):
    t.admin('user create', '--uid', 'u', '--display-name', 'U', '--email', 'u@example.org', '--access-key', 'UA', '--secret', 'US')
    t.admin('user create', '--uid', 'u', '--display-name', 'Again')
    t.admin('user create', '--uid', 'other', '--display-name', 'Other', '--email', 'u@example.org')
    t.admin('user create', '--uid', 'u3', '--tenant', 'ten', '--display-name', 'T', '--access-key', 'TA', '--secret', 'TS')
    t.admin('user info', '--uid', 'u')
    t.admin('user info', '--access-key', 'TA')
    t.admin('user info', '--uid', 'absent')
    t.admin('user modify', '--uid', 'u', '--display-name', 'New', '--max-buckets', '2', '--email', 'v@example.org')
    t.admin('subuser create', '--uid', 'u', '--subuser', 'u:swift', '--access', 'full', '--secret', 'SW', '--key-type', 'swift')
    t.admin('subuser create', '--uid', 'u', '--subuser', 'u:reader', '--access', 'read', '--access-key', 'UR', '--secret', 'URS')
    t.admin('subuser modify', '--uid', 'u', '--subuser', 'u:reader', '--access', 'readwrite')
    t.admin('key create', '--uid', 'u', '--access-key', 'UB', '--secret', 'UBS')
    t.admin('key rm', '--uid', 'u', '--access-key', 'UB')
    t.admin('key rm', '--uid', 'u', '--access-key', 'UB')
    t.admin('caps add', '--uid', 'u', '--caps', 'users=*;usage=read')
    t.admin('caps rm', '--uid', 'u', '--caps', 'usage=read')
    for n in range(3):
        t.s3('create_bucket', Bucket=f'u-{n}', keys=('UA', 'US'))
    t.s3('create_bucket', Bucket='u-0', keys=('TA', 'TS'))
    t.put('u-0', 'x', keys=('UA', 'US'))
    t.put('u-0', 'x', 20, keys=('TA', 'TS'))
    t.s3('get_object', Bucket='u-0', Key='x')
    t.s3('get_object', Bucket='u-0', Key='x', keys=('UR', 'URS'))
    t.s3('list_buckets', keys=('UA', 'wrong'))
    t.admin('user suspend', '--uid', 'u')
    t.s3('list_buckets', keys=('UA', 'US'))
    t.admin('user enable', '--uid', 'u')
    t.s3('list_buckets', keys=('UA', 'US'))
    t.admin('user list')
    t.admin('metadata list', 'user', unordered=True)
    t.admin('user check', '--uid', 'u')
    t.admin('user stats', '--uid', 'u', '--sync-stats')
    t.admin('user stats', '--uid', 'u')
    t.admin('user stats', '--uid', 'absent')
    t.admin('user rename', '--uid', 'u', '--new-uid', 'w')
    t.admin('user info', '--uid', 'w')
    t.admin('user info', '--uid', 'u')
    t.admin('bucket list', '--uid', 'w')
    t.admin('bucket stats', '--bucket', 'u-0')
    t.s3('get_object', Bucket='u-0', Key='x', keys=('UA', 'US'))
    t.admin('subuser rm', '--uid', 'w', '--subuser', 'w:reader', '--purge-keys')
    t.admin('user rm', '--uid', 'w')
    t.admin('user rm', '--uid', 'w', '--purge-data')
    t.admin('user rm', '--uid', 'u3', '--tenant', 'ten', '--purge-data')
    t.admin('user list')
    t.admin('gc process', '--include-all')
    t.objects('default.rgw.meta')


@case
def links(t):
    for uid, keys in (('from', ('FA', 'FS')), ('to', ('TOA', 'TOS'))):
        t.admin('user create', '--uid', uid, '--display-name', uid, '--access-key', keys[0], '--secret', keys[1])
    t.s3('create_bucket', Bucket='linked', keys=('FA', 'FS'))
    for n in range(3):
        t.put('linked', f'x{n}', keys=('FA', 'FS'))
    t.admin('bucket unlink', '--uid', 'from', '--bucket', 'linked')
    t.admin('bucket list', '--uid', 'from')
    t.admin('bucket link', '--uid', 'to', '--bucket', 'linked')
    t.admin('bucket list', '--uid', 'to')
    t.s3('get_object', Bucket='linked', Key='x0', keys=('TOA', 'TOS'))
    t.admin('bucket chown', '--uid', 'to', '--bucket', 'linked')
    t.s3('get_object', Bucket='linked', Key='x0', keys=('TOA', 'TOS'))
    t.s3('get_object', Bucket='linked', Key='x0', keys=('FA', 'FS'))
    t.s3('get_object_acl', Bucket='linked', Key='x0', keys=('TOA', 'TOS'))
    t.admin('bucket link', '--uid', 'to', '--bucket', 'linked', '--bucket-new-name', 'renamed')
    t.admin('bucket list', '--uid', 'to')
    t.admin('bucket stats', '--bucket', 'renamed')
    t.s3('list_objects', Bucket='renamed', keys=('TOA', 'TOS'))
    t.admin('bucket link', '--uid', 'absent', '--bucket', 'renamed')
    t.index('renamed')
    t.admin('metadata list', 'bucket', unordered=True)
    t.admin('metadata list', 'bucket.instance', unordered=True)
    t.admin('bucket rm', '--bucket', 'renamed', '--purge-objects')
    for uid in ('from', 'to'):
        t.admin('user rm', '--uid', uid, '--purge-data')


@case
def metadata(t):
    t.s3('create_bucket', Bucket='meta')
    t.admin('metadata list')
    for section in ('user', 'bucket', 'bucket.instance', 'otp', 'absent'):
        t.admin('metadata list', section, unordered=True)
    t.admin('metadata get', 'user:judge')
    bucket = t.admin('metadata get', 'bucket:meta')
    t.admin('metadata get', f"bucket.instance:meta:{bucket['data']['bucket']['bucket_id']}")
    t.admin('metadata get', 'bucket:absent')
    t.admin('metadata put', 'bucket:meta', stdin=json.dumps(bucket))
    t.admin('metadata get', 'bucket:meta')
    user = t.admin('metadata get', 'user:judge')
    user['data']['display_name'] = 'Judge of it'
    t.admin('metadata put', 'user:judge', stdin=json.dumps(user))
    t.admin('user info', *USER)
    t.admin('mdlog list', unordered=True)
    t.admin('sync status')
    # Which shard a bucket's changes are noted in, and how often, depends on its id and on the time.
    t.note('buckets that changed', sorted({t.common.text(entry['key']) for entry in t.gateway.json('datalog list')}))
    t.admin('zone get')
    t.admin('zonegroup get')
    t.admin('period get')
    t.admin('role create', '--role-name', 'R', '--path', '/a/', '--assume-role-policy-doc',
            '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["arn:aws:iam:::user/judge"]},"Action":["sts:AssumeRole"]}]}')
    t.admin('role list')
    t.admin('role-policy put', '--role-name', 'R', '--policy-name', 'P', '--policy-doc',
            '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*"],"Resource":"arn:aws:s3:::*"}]}')
    t.admin('role-policy list', '--role-name', 'R')
    t.admin('role-policy rm', '--role-name', 'R', '--policy-name', 'P')
    t.admin('role rm', '--role-name', 'R')
    t.admin('role list')
    t.admin('bucket rm', '--bucket', 'meta')


@case
def garbage(t):
    t.s3('create_bucket', Bucket='garbage')
    for n in range(12):
        t.put('garbage', f'big-{n}', 9 * MIB)
    for n in range(6):
        t.s3('delete_object', Bucket='garbage', Key=f'big-{n}')
    for n in range(6, 9):
        t.put('garbage', f'big-{n}', 5 * MIB, seed=n)
    t.admin('gc list', unordered=True)
    t.admin('gc list', '--include-all', unordered=True)
    t.objects('default.rgw.buckets.data')
    time.sleep(16)
    t.admin('gc list', unordered=True)
    t.admin('gc process')
    t.admin('gc list', '--include-all', unordered=True)
    for n in range(6, 12):
        t.s3('get_object', Bucket='garbage', Key=f'big-{n}')
        t.s3('delete_object', Bucket='garbage', Key=f'big-{n}')
    t.admin('gc process', '--include-all')
    t.admin('gc list', '--include-all')
    t.objects('default.rgw.buckets.data')
    t.admin('bucket rm', '--bucket', 'garbage')


def lifecycle(t, bucket, rules):
    t.s3('put_bucket_lifecycle_configuration', Bucket=bucket, LifecycleConfiguration={'Rules': rules})
    t.s3('get_bucket_lifecycle_configuration', Bucket=bucket)
    t.admin('lc get', '--bucket', bucket)


def rule(name, prefix, **what):
    return {'ID': name, 'Status': 'Enabled', 'Filter': {'Prefix': prefix}, **what}


@case
def lifecycles(t):
    """A day takes two seconds here."""
    t.s3('create_bucket', Bucket='lc-plain')
    t.s3('create_bucket', Bucket='lc-versions')
    t.s3('put_bucket_versioning', Bucket='lc-versions', VersioningConfiguration={'Status': 'Enabled'})
    t.s3('get_bucket_lifecycle_configuration', Bucket='lc-plain')
    lifecycle(t, 'lc-plain', [rule('soon', 'soon/', Expiration={'Days': 1}), rule('late', 'late/', Expiration={'Days': 1000}),
                              {'ID': 'tagged', 'Status': 'Enabled', 'Expiration': {'Days': 1},
                               'Filter': {'And': {'Prefix': 'tag/', 'Tags': [{'Key': 'k', 'Value': 'v'}]}}},
                              rule('parts', '', AbortIncompleteMultipartUpload={'DaysAfterInitiation': 1})])
    lifecycle(t, 'lc-plain', [rule('bad', '', Expiration={'Days': -1})])
    lifecycle(t, 'lc-versions', [rule('noncurrent', 'n/', NoncurrentVersionExpiration={'NoncurrentDays': 1}),
                                 rule('current', 'c/', Expiration={'Days': 1}),
                                 rule('markers', 'm/', Expiration={'ExpiredObjectDeleteMarker': True})])
    for n in range(4):
        t.put('lc-plain', f'soon/{n}', 5 * MIB if n == 0 else 10)
        t.put('lc-plain', f'late/{n}')
        t.put('lc-plain', f'tag/{n}', Tagging='k=v' if n % 2 else 'k=w')
        for prefix in 'ncmo':
            t.put('lc-versions', f'{prefix}/x', seed=n)
            t.put('lc-versions', f'{prefix}/y', seed=n)
    t.s3('head_object', Bucket='lc-plain', Key='soon/1')
    marked = t.s3('list_object_versions', Bucket='lc-versions', Prefix='m/x').get('Versions', [])
    t.s3('delete_object', Bucket='lc-versions', Key='m/x')
    t.s3('delete_object', Bucket='lc-versions', Key='m/y')
    t.s3('delete_object', Bucket='lc-versions', Key='o/y')
    for version in marked:
        t.s3('delete_object', Bucket='lc-versions', Key='m/x', VersionId=version['VersionId'])
    for n in range(2):
        upload = t.s3('create_multipart_upload', Bucket='lc-plain', Key=f'upload-{n}')['UploadId']
        t.s3('upload_part', Bucket='lc-plain', Key=f'upload-{n}', UploadId=upload, PartNumber=1, Body=body(n, 5 * MIB))
    t.admin('lc list', unordered=True)
    for _ in range(3):
        time.sleep(6)
        t.admin('lc process')
        t.admin('lc list', unordered=True)
        t.s3('list_objects', Bucket='lc-plain')
        t.s3('list_multipart_uploads', Bucket='lc-plain')
        t.s3('list_objects', Bucket='lc-versions')
        t.s3('list_object_versions', Bucket='lc-versions')
    t.index('lc-plain', parts=True)
    t.index('lc-versions')
    t.admin('lc process', '--bucket', 'lc-plain')
    t.s3('delete_bucket_lifecycle', Bucket='lc-plain')
    t.admin('lc list', unordered=True)
    t.admin('lc reshard fix', '--bucket', 'lc-versions')
    t.admin('bucket rm', '--bucket', 'lc-plain', '--purge-objects')
    t.admin('bucket rm', '--bucket', 'lc-versions', '--purge-objects')
    t.admin('lc list', unordered=True)
    t.admin('gc process', '--include-all')
    t.objects('default.rgw.buckets.data')


@case
def usage(t):
    t.admin('user create', '--uid', 'payer', '--display-name', 'P', '--access-key', 'PA', '--secret', 'PS')
    keys = ('PA', 'PS')
    t.s3('create_bucket', Bucket='usage-1', keys=keys)
    t.s3('create_bucket', Bucket='usage-2', keys=keys)
    for n in range(7):
        t.put('usage-1', f'x{n}', 1000, keys=keys)
        t.s3('get_object', Bucket='usage-1', Key=f'x{n}', keys=keys)
        t.s3('get_object', Bucket='usage-2', Key=f'x{n}', keys=keys)
    t.s3('list_objects', Bucket='usage-1', keys=keys)
    # The gateway tells the cluster every second.
    time.sleep(4)
    t.admin('usage show', '--uid', 'payer')
    t.admin('usage show', '--uid', 'payer', '--bucket', 'usage-1', '--show-log-sum=false')
    t.admin('usage show', '--uid', 'payer', '--categories', 'put_obj,get_obj')
    t.admin('usage show', '--uid', 'payer', '--start-date', '2099-01-01')
    t.admin('usage show', '--uid', 'payer', '--end-date', '2001-01-01')
    t.admin('usage show', '--uid', 'absent')
    t.admin('usage trim', '--uid', 'payer', '--bucket', 'usage-1')
    t.admin('usage show', '--uid', 'payer')
    t.admin('usage trim', '--uid', 'payer', '--start-date', '2099-01-01')
    t.admin('usage trim')
    t.admin('usage trim', '--uid', 'payer')
    t.admin('usage show', '--uid', 'payer')
    t.put('usage-1', 'y', keys=keys)
    time.sleep(4)
    t.admin('usage show', '--uid', 'payer')
    t.admin('usage clear')
    t.admin('usage clear', '--yes-i-really-mean-it')
    t.admin('usage show')
    t.admin('user rm', '--uid', 'payer', '--purge-data')


@case
def quotas(t):
    t.admin('user create', '--uid', 'small', '--display-name', 'S', '--access-key', 'QA', '--secret', 'QS')
    keys = ('QA', 'QS')
    t.s3('create_bucket', Bucket='quota-1', keys=keys)
    t.s3('create_bucket', Bucket='quota-2', keys=keys)
    for scope, args in (('user', ('--uid', 'small')), ('bucket', ('--bucket', 'quota-1'))):
        for limit, value in (('--max-objects', '5'), ('--max-size', '20000')):
            t.admin('quota set', '--quota-scope', scope, *args, '--max-objects', '-1', '--max-size', '-1')
            t.admin('quota set', '--quota-scope', scope, *args, limit, value)
            t.admin('quota enable', '--quota-scope', scope, *args)
            for bucket in ('quota-1', 'quota-2'):
                for n in range(4):
                    t.put(bucket, f'{scope}{limit}{n}', 6000, keys=keys)
                    t.put(bucket, f'{scope}{limit}{n}', 6000, keys=keys)
            t.admin('user stats', '--uid', 'small', '--sync-stats')
            t.admin('bucket stats', '--bucket', 'quota-1', without=('ver', 'max_marker'))
            t.admin('quota disable', '--quota-scope', scope, *args)
            for bucket in ('quota-1', 'quota-2'):
                for n in range(4):
                    t.s3('delete_object', Bucket=bucket, Key=f'{scope}{limit}{n}', keys=keys)
            t.admin('user stats', '--uid', 'small', '--sync-stats')
    t.admin('user stats', '--uid', 'small', '--reset-stats')
    t.admin('user stats', '--uid', 'small')
    t.admin('global quota get')
    t.admin('bucket limit check', '--uid', 'small')
    t.admin('user rm', '--uid', 'small', '--purge-data')


@case
def reshards(t):
    for bucket in ('shards', 'shards-versioned'):
        t.s3('create_bucket', Bucket=bucket)
        if bucket != 'shards':
            t.s3('put_bucket_versioning', Bucket=bucket, VersioningConfiguration={'Status': 'Enabled'})
        for n in range(30):
            t.put(bucket, f'{"_" if n % 5 == 0 else ""}x{n:02}/y')
            if n % 3 == 0:
                t.put(bucket, f'{"_" if n % 5 == 0 else ""}x{n:02}/y', seed=n)
            if n % 7 == 0:
                t.s3('delete_object', Bucket=bucket, Key=f'x{n:02}/y')
        t.s3('create_multipart_upload', Bucket=bucket, Key='upload')
        for shards in ('7', '1', '0', '23', '70000', '3'):
            t.admin('bucket reshard', '--bucket', bucket, '--num-shards', shards)
            t.admin('bucket reshard', '--bucket', bucket, '--num-shards', shards, '--yes-i-really-mean-it')
            # A gateway that has not heard of it yet would answer that what is deleted is not there.
            time.sleep(3)
            t.admin('reshard status', '--bucket', bucket)
            t.index(bucket)
            t.pages('list_objects', Bucket=bucket, MaxKeys=7)
            t.pages('list_object_versions', Bucket=bucket, MaxKeys=7)
            t.s3('list_multipart_uploads', Bucket=bucket)
            t.put(bucket, 'x01/y', seed=shards)
            t.put(bucket, 'x02/y', seed=shards)
            t.s3('delete_object', Bucket=bucket, Key='x02/y')
        t.admin('reshard add', '--bucket', bucket, '--num-shards', '5')
        t.admin('reshard list', unordered=True)
        t.admin('reshard add', '--bucket', bucket, '--num-shards', '6')
        t.admin('reshard list', unordered=True)
        t.admin('reshard status', '--bucket', bucket)
        t.admin('reshard cancel', '--bucket', bucket)
        t.admin('reshard cancel', '--bucket', bucket)
        t.admin('reshard list')
        t.admin('reshard process')
        t.admin('reshard add', '--bucket', bucket, '--num-shards', '8')
        t.admin('reshard process')
        t.admin('reshard list')
        t.index(bucket)
        t.admin('bucket limit check', *USER)
        t.admin('reshard stale-instances list')
        t.log(bucket)
        t.admin('bi purge', '--bucket', 'absent')
    t.admin('reshard add', '--bucket', 'absent', '--num-shards', '8')
    t.admin('reshard stale-instances rm')
    t.admin('metadata list', 'bucket.instance', unordered=True)
    for bucket in ('shards', 'shards-versioned'):
        t.admin('bucket rm', '--bucket', bucket, '--purge-objects')
    t.admin('gc process', '--include-all')
    t.objects('default.rgw.buckets.index')


def totp(seed, at, step=30):
    digest = hmac.new(seed, struct.pack('>Q', int(at) // step), hashlib.sha1).digest()
    code = struct.unpack('>I', digest[digest[-1] & 15:][:4])[0] & 0x7fffffff
    return f'{code % 10**6:06}'


@case
def mfa(t):
    seed = bytes(range(20))
    args = ('--uid', 'judge', '--totp-serial', 'S1')
    t.admin('mfa create', *args, '--totp-seed', seed.hex(), '--totp-seed-type', 'hex')
    t.admin('mfa create', '--uid', 'judge', '--totp-serial', 'S2', '--totp-seed', 'MFRGGZDFMZTWQ2LK', '--totp-seed-type', 'base32',
            '--totp-seconds', '60', '--totp-window', '1')
    t.admin('mfa list', *USER)
    t.admin('mfa get', *args)
    t.admin('mfa get', '--uid', 'judge', '--totp-serial', 'absent')
    t.admin('user info', *USER)
    t.admin('metadata list', 'otp')
    t.admin('metadata get', 'otp:judge', without=('time_ofs', ))
    # What is asked would otherwise be of two steps on the two gateways.
    time.sleep(max(0, 32 - time.time() % 30) if time.time() % 30 > 20 else 0)
    check = 'mfa check', *args, '--totp-pin'
    for at in (0, -3600):
        done = t.gateway.admin(*check, totp(seed, time.time() + at))
        t.note(f'mfa check {at} -> {done.returncode}', done.stdout)
    t.s3('create_bucket', Bucket='mfa')
    t.s3('put_bucket_versioning', Bucket='mfa', VersioningConfiguration={'Status': 'Enabled', 'MFADelete': 'Enabled'})
    pin = totp(seed, time.time() + 30)
    for said in (pin, pin, '000000'):
        t.s3('put_bucket_versioning', Bucket='mfa', MFA=f'S1 {said}', VersioningConfiguration={'Status': 'Enabled', 'MFADelete': 'Enabled'})
    t.s3('get_bucket_versioning', Bucket='mfa')
    version = t.put('mfa', 'x').get('VersionId')
    t.s3('delete_object', Bucket='mfa', Key='x', VersionId=version)
    t.s3('delete_object', Bucket='mfa', Key='x')
    t.s3('delete_object', Bucket='mfa', Key='x', VersionId=version, MFA=f'S1 {totp(seed, time.time() - 30)}')
    t.s3('list_object_versions', Bucket='mfa')
    done = t.gateway.admin('mfa resync', *args, '--totp-pin', totp(seed, time.time() - 330), '--totp-pin', totp(seed, time.time() - 300))
    t.note(f'mfa resync -> {done.returncode}', done.stdout)
    t.admin('mfa get', *args, without=('time_ofs', ))
    done = t.gateway.admin(*check, totp(seed, time.time() - 300))
    t.note(f'mfa check after resync -> {done.returncode}', done.stdout)
    t.admin('mfa remove', *args)
    t.admin('mfa remove', *args)
    t.admin('mfa list', *USER)
    t.admin('mfa remove', '--uid', 'judge', '--totp-serial', 'S2')
    t.admin('bucket rm', '--bucket', 'mfa', '--purge-objects')


class Receiver:
    """A server that notes what notifications are sent to it, and refuses them until it is told to listen."""

    def __init__(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                data = self.rfile.read(int(self.headers.get('Content-Length', 0)))
                with receiver.lock:
                    if receiver.listens:
                        receiver.events += json.loads(data)['Records']
                self.send_response(200 if receiver.listens else 503)
                self.send_header('Content-Length', '0')
                self.end_headers()

            def log_message(self, *_):
                pass

        self.lock = threading.Lock()
        self.events, self.listens = [], True
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@case
def notifications(t):
    receiver = Receiver()
    port = receiver.server.server_address[1]
    t.common.own.append((f'127.0.0.1:{port}', '<receiver>'))
    sns = t.gateway.client(service='sns', signature_version='v4')
    topics = {}
    for name, persistent in (('at-once', 'false'), ('queued', 'true')):
        try:
            topics[name] = sns.create_topic(Name=name, Attributes={
                'push-endpoint': f'http://127.0.0.1:{port}', 'persistent': persistent, 'OpaqueData': 'mine'})['TopicArn']
        except botocore.exceptions.ClientError as e:
            t.note('create_topic', e.response)
    t.admin('topic list')
    t.admin('topic get', '--topic', 'queued')
    for name, arn in topics.items():
        t.s3('create_bucket', Bucket=f'notes-{name}')
        t.s3('put_bucket_notification_configuration', Bucket=f'notes-{name}', NotificationConfiguration={'TopicConfigurations': [
            {'Id': 'n', 'TopicArn': arn, 'Events': ['s3:ObjectCreated:*', 's3:ObjectRemoved:*']}]})
        t.s3('get_bucket_notification_configuration', Bucket=f'notes-{name}')
    expected = before = 0
    for listens in (True, False):
        receiver.listens = listens
        for name in ['at-once', 'queued'] if listens else ['queued']:
            bucket = f'notes-{name}'
            for n in range(20):
                t.put(bucket, f'x{n}', 100 + n)
            for n in range(0, 20, 2):
                t.s3('delete_object', Bucket=bucket, Key=f'x{n}')
            t.s3('copy_object', Bucket=bucket, Key='copy', CopySource={'Bucket': bucket, 'Key': 'x1'})
            upload = t.s3('create_multipart_upload', Bucket=bucket, Key='upload')['UploadId']
            etag = t.s3('upload_part', Bucket=bucket, Key='upload', UploadId=upload, PartNumber=1, Body=body(1, 10))['ETag']
            t.s3('complete_multipart_upload', Bucket=bucket, Key='upload', UploadId=upload,
                 MultipartUpload={'Parts': [{'PartNumber': 1, 'ETag': etag}]})
            expected += 34
        if not listens:
            time.sleep(3)
            t.note('nothing has come', len(receiver.events) - before)
            receiver.listens = True
        wait_for(lambda: len(receiver.events) >= expected, 60)
        # More would be wrong.
        time.sleep(8)
        before = len(receiver.events)
    # An event that was refused may come twice.
    events = {(e['eventName'], e['s3']['bucket']['name'], e['s3']['object']['key'], e['s3']['object']['sequencer'], e['eventTime']): e
              for e in receiver.events}
    for e in events.values():
        e['s3']['object']['sequencer'] = e['eventId'] = e['s3']['object']['etag'] = ''
        e['responseElements'].pop('x-amz-id-2')
    t.note('events', list(events.values()), unordered=True)
    t.objects('default.rgw.log')
    for name in topics:
        t.admin('topic rm', '--topic', name)
        t.admin('bucket rm', '--bucket', f'notes-{name}', '--purge-objects')
    t.admin('topic list')
    receiver.server.shutdown()


def swift_files(t, *names):
    at = t.gateway.directory / 'files'
    at.mkdir(exist_ok=True)
    for name, size in names:
        (at / name).write_bytes(body(name, size))
    return at


@case
def swift(t):
    t.admin('subuser create', *USER, '--subuser', 'judge:swift', '--access', 'full', '--key-type', 'swift', '--secret', 'SW')
    at = swift_files(t, ('small', 1000), ('large', 9 * MIB), ('static', 9 * MIB))

    def run(*args, unordered=False):
        done = t.gateway.run('swift', '-A', f'{t.gateway.url}/auth/v1.0', '-U', 'judge:swift', '-K', 'SW', *args)
        # Progress has times and rates.
        said = [line.split(' [')[0] for line in done.stdout.splitlines() if not line.strip().startswith(('Date:', 'X-Timestamp:'))]
        shown = ' '.join(str(a).replace(str(at), '<files>') for a in args)
        # The gateway's headers come in no order of their own.
        t.note(f'swift {shown} -> {done.returncode}', '\n'.join(said + done.stderr.splitlines()).replace(str(at), '<files>'),
               unordered or args[0] == 'stat')

    run('post', 'box')
    run('list')
    run('upload', 'box', f'{at}/small', '--object-name', 'small')
    run('upload', 'box', f'{at}/large', '--object-name', 'large', '--segment-size', str(4 * MIB), '--segment-threads', '1', unordered=True)
    run('upload', 'box', f'{at}/static', '--object-name', 'static', '--segment-size', str(4 * MIB), '--segment-threads', '1',
        '--use-slo', unordered=True)
    for name in ('small', 'large', 'static'):
        run('stat', 'box', name)
        run('download', 'box', name, '-o', f'{at}/got')
        t.note(name, hashlib.sha256((at / 'got').read_bytes()).hexdigest())
    run('list')
    run('list', 'box', '--long')
    run('list', 'box', '--prefix', 's', '--delimiter', 'a')
    run('list', 'box_segments', unordered=True)
    run('post', 'box', 'small', '-m', 'colour:blue')
    run('stat', 'box', 'small')
    run('stat', 'box')
    run('stat')
    run('copy', 'box', 'small', '-d', '/box/copy')
    run('upload', 'box', f'{at}/small', '--object-name', 'expires', '-H', 'X-Delete-After: 3')
    run('post', 'box', '-w', 'kept')
    run('post', 'kept')
    run('post', 'box', '-H', 'X-Versions-Location: kept')
    run('upload', 'box', f'{at}/large', '--object-name', 'small')
    run('list', 'kept')
    run('delete', 'box', 'small')
    run('stat', 'box', 'small')
    time.sleep(5)
    t.admin('objects expire')
    run('list', 'box')
    t.admin('bi list', '--bucket', 'box', unordered=True)
    run('delete', 'box', 'large', unordered=True)
    run('delete', 'box', 'static', unordered=True)
    run('list', 'box_segments', unordered=True)
    run('delete', 'box', unordered=True)
    for box in ('kept', 'box_segments'):
        run('delete', box, unordered=True)
    run('list')
    t.admin('subuser rm', *USER, '--subuser', 'judge:swift')
    t.admin('gc process', '--include-all')
    t.objects('default.rgw.buckets.data')
