"""A conversation with a gateway: every call is made and its answer noted, to be compared with another gateway's."""
import hashlib
import json
import random
import re

import botocore.exceptions

from common import Common

CASES = []
POOLS = [f'default.rgw.{name}' for name in ('meta', 'log', 'buckets.index', 'buckets.data', 'buckets.non-ec')]
# A line of the log, which may come amid another one: time, thread, level.
LOGGED = re.compile(r'20\S+ [0-9a-f]+ +-?\d+ (.*)\n')


def case(function):
    CASES.append(function)
    return function


def body(seed, size):
    return random.Random(seed).randbytes(size)


class Talk:
    def __init__(self, gateway):
        self.gateway = gateway
        self.common = Common([(f'127.0.0.1:{gateway.port}', '<gateway>'), (f'%3A{gateway.port}', '<port>')])
        self.clients = {}
        self.keys = ('AK', 'SK')
        self.lines = []
        # What other cases left.
        self.before = {pool: self.names(pool) for pool in POOLS}

    def names(self, pool):
        return set(self.gateway.rados('-p', pool, '--all', 'ls').stdout.splitlines())

    def note(self, title, value, unordered=False):
        self.lines.append(f'# {title}')
        self.lines += self.common.lines(value, unordered)
        return value

    def client(self, keys=None):
        keys = keys or self.keys
        if keys not in self.clients:
            self.clients[keys] = self.gateway.client(keys)
        return self.clients[keys]

    def s3(self, operation, keys=None, **params):
        """Calls an operation; returns its answer, with `Code` if it failed."""
        title = f'{operation} ' + ' '.join(f'{k}={self.brief(v)}' for k, v in params.items() if k != 'MFA')
        try:
            answer = getattr(self.client(keys), operation)(**params)
        except botocore.exceptions.ClientError as e:
            answer = {**e.response, 'Code': e.response['Error']['Code']}
        except (botocore.exceptions.BotoCoreError, AttributeError) as e:
            answer = {'Code': type(e).__name__}
        if 'Deleted' in answer:
            # The gateway sorts them by version, which is random.
            answer['Deleted'].sort(key=lambda gone: gone['Key'])
            answer['Deleted'] = [{k: v for k, v in gone.items() if 'VersionId' not in k} for gone in answer['Deleted']]
        if 'Body' in answer:
            data = answer['Body'].read()
            answer['Body'] = f'{len(data)} bytes, {hashlib.sha256(data).hexdigest()}'
        return self.note(self.common.text(title), answer)

    @staticmethod
    def brief(value):
        text = f'{len(value)} bytes' if isinstance(value, bytes) else json.dumps(value, default=str)
        return text if len(text) < 300 else text[:300] + '…'

    def admin(self, command, *args, unordered=False, stdin=None, without=(), errors=True):
        """Runs `radosgw-admin`; returns what it printed. WITHOUT names fields that are not compared."""
        done = self.gateway.admin(command, *args, stdin=stdin)
        try:
            answer = json.loads(done.stdout, strict=False)
        except ValueError:
            answer = done.stdout
        self.note(self.common.text(f'{command} {" ".join(args)} -> {done.returncode}'), strip(answer, without), unordered)
        if errors and done.returncode:
            logged = LOGGED.findall(done.stderr)
            self.note('errors', '\n'.join([*logged, *LOGGED.sub('', done.stderr).splitlines()]), unordered=True)
        return answer

    def put(self, bucket, key, size=10, seed=None, **params):
        return self.s3('put_object', Bucket=bucket, Key=key, Body=body(seed or key, size), **params)

    def pages(self, operation, limit=1000, **params):
        """Lists page by page, and notes each."""
        pages = []
        more = {'list_objects': [('Marker', 'NextMarker')], 'list_objects_v2': [('ContinuationToken', 'NextContinuationToken')],
                'list_object_versions': [('KeyMarker', 'NextKeyMarker'), ('VersionIdMarker', 'NextVersionIdMarker')],
                'list_multipart_uploads': [('KeyMarker', 'NextKeyMarker'), ('UploadIdMarker', 'NextUploadIdMarker')],
                'list_parts': [('PartNumberMarker', 'NextPartNumberMarker')]}[operation]
        while len(pages) < limit:
            page = self.s3(operation, **params)
            pages.append(page)
            if not page.get('IsTruncated'):
                break
            before = dict(params)
            for marker, following in more:
                # A version 1 of the listing without a delimiter names no marker: it is the last key.
                value = page.get(following) or (page['Contents'][-1]['Key'] if marker == 'Marker' and page.get('Contents') else None)
                if value not in (None, ''):
                    params[marker] = value
            if params == before:
                self.note('the listing does not go on', {})
                break
        return pages

    def index(self, bucket, parts=False):
        """What the bucket's index holds, its counts, and what a check finds.

        With PARTS, there were multipart uploads: when one is completed, Ceph before 18.2 logs that its parts leave the index, which
        newer releases and Spirula do not, so that the index has another number of changes."""
        self.admin('bi list', '--bucket', bucket, unordered=True)
        self.admin('bucket stats', '--bucket', bucket, without=('ver', 'max_marker') if parts else ())
        self.admin('bucket check', '--bucket', bucket)

    def log(self, bucket, parts=False):
        """The log of the bucket's index, 1,000 entries at most."""
        done = self.gateway.json('bilog list', '--bucket', bucket, '--max-entries', '1000')
        if parts:
            done = strip([entry for entry in done if entry['op'] != 'del' or entry['op_tag']], ('op_id', 'index_ver'))
        self.note(f'bilog list {bucket}', done, unordered=parts)

    def objects(self, pool):
        """Objects of a pool that the case has left: their names, in the common form."""
        self.note(f'objects of {pool}', '\n'.join(self.names(pool) - self.before[pool]), unordered=True)


def strip(value, without):
    if isinstance(value, dict):
        return {k: strip(v, without) for k, v in value.items() if k not in without}
    if isinstance(value, list):
        return [strip(v, without) for v in value]
    return value
