"""What two gateways say, in a form that they have in common: without ids, times, random names and addresses."""
import datetime
import json
import re

UUID = r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
KNOWN = re.compile(
    # Buckets, requests, and zones.
    rf'(?P<id>{UUID}\.\d+\.\d+)|(?P<uuid>{UUID})'
    r'|(?P<upload>2(?:~|%7E)[\w-]{31})'
    r'|(?P<time>20\d\d-\d\d-\d\d(?:[T ]|%20|\b)\d\d(?::|%3A)\d\d(?::|%3A)\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?'
    r'|20\d{6}T\d{6}Z'
    r'|\w{3}, \d\d \w{3} 20\d\d \d\d:\d\d:\d\d GMT'
    r'|(?<![\w.])1[789]\d{8}(?:\.\d+)?(?![\w.]))'
    # Entries of an index's log: the version of the index, then that of the placement group.
    r'|(?P<log>(?<=\d{11}\.)\d+\.\d+)'
    # Parts of a queue of what changed, of a shard that depends on the bucket's id.
    r'|(?P<part>data_log\.\d+\.[\w/+-]{11}\.\d+)'
    r'|(?P<request>tx[0-9a-f]{21}-[0-9a-f]{10}(?:-[0-9a-f]+)?-\w+)'
    # Prefixes of tails, versions of objects in names of RADOS objects.
    r'|(?P<tail>\.[\w-]{31}_|(?<=\.)[\w-]{32}(?=\.\d))|(?P<version>(?<=:)[\w.-]{31,32}(?=_))'
    # Versions, tags, and generated keys. What is hexadecimal in lower case is a checksum.
    r'|(?P<random>(?<![\w.-])(?![0-9a-f]{32}(?![\w.-]))(?![a-z_.-]+(?![\w.-]))[\w.-]{31,32}(?![\w.-]))', re.ASCII)
# Fields whose values are the cluster's own.
OWN = {'date', 'x-amz-request-id', 'x-trans-id', 'x-openstack-request-id', 'RequestId', 'HostId', 'RetryAttempts', 'mtime', 'host_id',
       'bytes_sent', 'epoch', 'pool_epoch', 'user.rgw.pg_ver'}
# Versions of metadata count the writes of it, which is to be the same; their tags are random.
TAGS = {'tag', 'master_ver_tag'}


class Common:
    """The names that one gateway's ids have in the common form: numbers, in the order in which they were seen."""

    def __init__(self, own=()):
        self.names = {}
        self.own = list(own)
        self.counts = {}
        # What comes in an order of its own gets no numbers.
        self.is_unordered = False

    def named(self, kind, text):
        if kind in ('time', 'log', 'part'):
            return f'<{kind}>'
        if text not in self.names and self.is_unordered:
            return f'<{kind}>'
        if text not in self.names:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.names[text] = f'<{kind} {self.counts[kind]}>'
        return self.names[text]

    def text(self, text):
        for what, name in self.own:
            text = text.replace(what, name)
        return KNOWN.sub(lambda match: self.named(match.lastgroup, match[0]), text)

    def value(self, value, field=''):
        """A value of JSON or of boto3."""
        match value:
            case dict():
                if value.keys() == {'pool', 'epoch'}:
                    return '<version of the placement group>'
                return {self.text(str(k)): self.value(v, str(k)) for k, v in value.items() if str(k) not in OWN}
            case list() | tuple():
                return [self.value(v, field) for v in value]
            case datetime.datetime():
                return '<time>'
            case str() | bytes():
                text = value if isinstance(value, str) else value.decode('utf-8', 'backslashreplace')
                if field in TAGS and text:
                    return '<tag>'
                return self.text(text)
            case bool() | int() | float() | None:
                return self.text(str(value)) if isinstance(value, (int, float)) and value > 1.7e9 else value
        return self.text(str(value))

    def lines(self, value, unordered=False):
        """A value in lines. With UNORDERED, elements of the outermost list in an order of their own, ids without numbers."""
        self.is_unordered = unordered
        value = self.value(value)
        self.is_unordered = False
        if isinstance(value, str):
            lines = value.splitlines()
            return sorted(re.sub(r'<(\w+) \d+>', r'<\1>', line) for line in lines if '<part>' not in line) if unordered else lines
        if unordered:
            value = json.loads(re.sub(r'<(\w+) \d+>', r'<\1>', json.dumps(value)))
            if isinstance(value, list):
                value = sorted(value, key=lambda v: json.dumps(v, sort_keys=True))
        return json.dumps(value, indent=1, sort_keys=True, default=str).splitlines()
