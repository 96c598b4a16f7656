"""What clusters say, without what differs from one cluster to another."""
import json
import re

# Of objects' infos: times and requests.
LEFT_OUT = {'mtime', 'local_mtime', 'last_reqid', 'pool'}
ERRORS = ('OSD_SCRUB_ERRORS', 'PG_DAMAGED')


def versions(text):
    """Without the epochs of versions."""
    return re.sub(r"\b[1-9]\d*'(\d+)", r"E'\1", text)


def leaves(value, roles, path=''):
    """The values of a tree by their paths. Shards are named by the role of their OSD."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in LEFT_OUT:
                yield from leaves(inner, roles, f'{path}.{key}')
    elif path.endswith('.shards'):
        for shard in value:
            shard = dict(shard)
            yield from leaves(shard, roles, f'{path}.{roles[shard.pop("osd")]}')
    elif isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        for at, inner in enumerate(value):
            yield from leaves(inner, roles, f'{path}.{at}')
    else:
        yield path.lstrip('.'), versions(json.dumps(value))


def health_lines(detail, pg):
    """The errors that scrubs cause, each with its lines."""
    found, within = [], False
    for line in detail.splitlines():
        if line.startswith('['):
            within = any(f'] {error}:' in line for error in ERRORS)
        if within:
            line = line.replace(f'pg {pg} ', 'pg PG ')
            found.append(re.sub(r', acting \[.*\]', '', line))
    return found


def log_lines(lines, pg, roles):
    """A PG's lines in the cluster log."""
    pool = pg.split('.')[0]
    found = []
    for line in lines:
        match = re.search(rf' : cluster (\[\w+\] (?:(?:deep-scrub|scrub|repair) )?){re.escape(pg)}(?:s\d+)? (.*)', line)
        if not match:
            continue
        text = re.sub(r'\bshard (\d+)\b', lambda m: f'shard {roles[int(m[1])]}', match[2])
        text = re.sub(rf'(?<![\w.:]){pool}:(?=[0-9a-f]{{8}}:)', 'POOL:', text)
        text = re.sub(r'\b(osd|client|mds|mgr)\.\d+\.\d+:\d+', 'REQUEST', text)
        found.append(f'{match[1].rstrip()} {versions(text)}')
    return found
