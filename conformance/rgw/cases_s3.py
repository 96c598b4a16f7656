"""Cases: objects, versions, listings, parts."""
from talk import body, case

MIB = 1 << 20
USER = ('--uid', 'judge')


@case
def buckets(t):
    t.s3('list_buckets')
    t.s3('create_bucket', Bucket='first')
    t.s3('create_bucket', Bucket='first')
    t.s3('create_bucket', Bucket='No')
    t.s3('create_bucket', Bucket='elsewhere', CreateBucketConfiguration={'LocationConstraint': 'nowhere'})
    t.s3('head_bucket', Bucket='first')
    t.s3('head_bucket', Bucket='absent')
    t.s3('get_bucket_location', Bucket='first')
    t.s3('get_bucket_acl', Bucket='first')
    t.s3('put_bucket_acl', Bucket='first', ACL='public-read')
    t.s3('get_bucket_acl', Bucket='first')
    t.s3('put_bucket_cors', Bucket='first', CORSConfiguration={'CORSRules': [{'AllowedMethods': ['GET'], 'AllowedOrigins': ['*']}]})
    t.s3('get_bucket_cors', Bucket='first')
    t.s3('delete_bucket_cors', Bucket='first')
    t.s3('get_bucket_cors', Bucket='first')
    t.s3('put_bucket_policy', Bucket='first', Policy='{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*",'
         '"Action":"s3:GetObject","Resource":"arn:aws:s3:::first/*"}]}')
    t.s3('get_bucket_policy', Bucket='first')
    t.s3('delete_bucket_policy', Bucket='first')
    t.s3('put_bucket_tagging', Bucket='first', Tagging={'TagSet': [{'Key': 'a', 'Value': 'b'}]})
    t.s3('get_bucket_tagging', Bucket='first')
    t.s3('put_bucket_encryption', Bucket='first', ServerSideEncryptionConfiguration={
        'Rules': [{'ApplyServerSideEncryptionByDefault': {'SSEAlgorithm': 'AES256'}}]})
    t.s3('put_bucket_website', Bucket='first', WebsiteConfiguration={'IndexDocument': {'Suffix': 'index.html'}})
    t.s3('put_bucket_request_payment', Bucket='first', RequestPaymentConfiguration={'Payer': 'Requester'})
    t.s3('get_bucket_request_payment', Bucket='first')
    t.put('first', 'x')
    t.s3('delete_bucket', Bucket='first')
    t.admin('bucket list')
    t.admin('bucket list', *USER)
    t.admin('bucket list', '--bucket', 'first')
    t.admin('bucket stats', '--bucket', 'first')
    t.admin('bucket limit check', *USER)
    t.s3('delete_object', Bucket='first', Key='x')
    t.index('first')
    t.s3('delete_bucket', Bucket='first')
    t.s3('list_buckets')
    for n in range(23):
        t.s3('create_bucket', Bucket=f'many-{n}')
    t.s3('list_buckets')
    t.admin('bucket list', *USER, '--max-entries', '7')
    for n in range(23):
        t.s3('delete_bucket', Bucket=f'many-{n}')
    t.admin('bucket list', *USER)


@case
def objects(t):
    t.s3('create_bucket', Bucket='objects')
    for size in (0, 1, 4096, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB):
        t.put('objects', f'size-{size}', size, ContentType='text/plain', Metadata={'colour': 'blue', 'n': str(size)})
        t.s3('head_object', Bucket='objects', Key=f'size-{size}')
        t.s3('get_object', Bucket='objects', Key=f'size-{size}')
    big = f'size-{9 * MIB}'
    for part in ('bytes=0-0', f'bytes={4 * MIB - 1}-{4 * MIB}', 'bytes=-5', f'bytes={9 * MIB}-', 'bytes=8388600-99999999'):
        t.s3('get_object', Bucket='objects', Key=big, Range=part)
    etag = t.s3('head_object', Bucket='objects', Key='size-1')['ETag']
    t.s3('get_object', Bucket='objects', Key='size-1', IfMatch=etag)
    t.s3('get_object', Bucket='objects', Key='size-1', IfNoneMatch=etag)
    t.s3('get_object', Bucket='objects', Key='size-1', IfMatch='"no"')
    t.s3('get_object', Bucket='objects', Key='absent')
    t.s3('head_object', Bucket='objects', Key='absent')
    t.s3('delete_object', Bucket='objects', Key='absent')
    for size in (10, 6 * MIB, 0, 5 * MIB):
        t.put('objects', 'again', size, seed=size)
        t.s3('get_object', Bucket='objects', Key='again')
    for key in ('a b', 'ü/ö', '_under', '__two', 'per%cent', 'plus+and&', 'very' * 60, '\u2603', '/slash', 'x//y', '.', '~'):
        t.put('objects', key)
        t.s3('get_object', Bucket='objects', Key=key)
    t.put('objects', 'n' * 1025)
    t.index('objects')
    t.admin('object stat', '--bucket', 'objects', '--object', big, without=('obj_tag', ))
    for source in (big, 'size-1', '_under', 'absent'):
        t.s3('copy_object', Bucket='objects', Key=f'copy-{source}', CopySource={'Bucket': 'objects', 'Key': source})
    t.s3('copy_object', Bucket='objects', Key='size-1', CopySource={'Bucket': 'objects', 'Key': 'size-1'})
    t.s3('copy_object', Bucket='objects', Key='size-1', CopySource={'Bucket': 'objects', 'Key': 'size-1'}, MetadataDirective='REPLACE',
         Metadata={'colour': 'red'})
    t.s3('head_object', Bucket='objects', Key='size-1')
    t.s3('create_bucket', Bucket='objects-2')
    t.s3('copy_object', Bucket='objects-2', Key='copy', CopySource={'Bucket': 'objects', 'Key': big})
    # The source goes; its tail has another owner.
    t.s3('delete_object', Bucket='objects', Key=big)
    t.admin('gc list', '--include-all', unordered=True)
    t.admin('gc process', '--include-all')
    t.s3('get_object', Bucket='objects-2', Key='copy')
    t.s3('get_object', Bucket='objects', Key=f'copy-{big}')
    t.s3('put_object_tagging', Bucket='objects', Key='again', Tagging={'TagSet': [{'Key': 'k', 'Value': 'v'}, {'Key': 'l', 'Value': ''}]})
    t.s3('get_object_tagging', Bucket='objects', Key='again')
    t.s3('head_object', Bucket='objects', Key='again')
    t.s3('delete_object_tagging', Bucket='objects', Key='again')
    t.s3('get_object_tagging', Bucket='objects', Key='again')
    for acl in ('public-read', 'private', 'nonsense'):
        t.s3('put_object_acl', Bucket='objects', Key='again', ACL=acl)
        t.s3('get_object_acl', Bucket='objects', Key='again')
    t.s3('delete_objects', Bucket='objects', Delete={'Objects': [{'Key': 'again'}, {'Key': 'absent'}]})
    t.admin('object rm', '--bucket', 'objects', '--object', 'size-0')
    t.admin('object unlink', '--bucket', 'objects', '--object', 'size-4096')
    t.index('objects')
    t.admin('bucket check', '--bucket', 'objects', '--fix', '--check-objects')
    t.index('objects')
    t.log('objects')
    t.admin('object rewrite', '--bucket', 'objects', '--object', '_under')
    t.admin('bucket rewrite', '--bucket', 'objects', '--min-rewrite-size', '4194304', without=('duration', ))
    t.admin('bucket radoslist', '--bucket', 'objects', unordered=True)
    for bucket in ('objects', 'objects-2'):
        t.admin('bucket rm', '--bucket', bucket, '--purge-objects')
    t.admin('gc process', '--include-all')
    t.admin('gc list', '--include-all')
    t.objects('default.rgw.buckets.data')
    t.objects('default.rgw.buckets.index')


@case
def listings(t):
    t.s3('create_bucket', Bucket='lists')
    keys = [f'd{n % 4}/e{n % 3}/f{n:02}' for n in range(24)] + [f'top-{n}' for n in range(5)]
    keys += ['_a', '_a/b', '__c', 'd', 'd1', 'd1/', 'd10/x', 'ä/ö', 'zz/', 'z', '%/+', 'a b/c']
    for key in keys:
        t.s3('put_object', Bucket='lists', Key=key, Body=key.encode())
    for operation in ('list_objects', 'list_objects_v2', 'list_object_versions'):
        for size in (1, 3, 7, 1000):
            for delimiter in ('', '/', '/e', 'd1'):
                for prefix in ('', 'd1/', '_', 'zz'):
                    if size != 1 or prefix:
                        t.pages(operation, Bucket='lists', MaxKeys=size, Delimiter=delimiter, Prefix=prefix)
    for start in ('', 'd1/e1/', 'd1', 'zzz', '_', 'd1/e0/f09'):
        t.pages('list_objects', Bucket='lists', Marker=start, MaxKeys=5)
        t.pages('list_objects', Bucket='lists', Marker=start, MaxKeys=5, Delimiter='/')
        t.pages('list_objects_v2', Bucket='lists', StartAfter=start, MaxKeys=5, Delimiter='/', FetchOwner=True)
        t.pages('list_object_versions', Bucket='lists', KeyMarker=start, MaxKeys=5)
    t.s3('list_objects', Bucket='lists', MaxKeys=0)
    t.s3('list_objects', Bucket='lists', EncodingType='url')
    t.admin('bucket list', '--bucket', 'lists', '--max-entries', '9')
    t.admin('bucket list', '--bucket', 'lists', '--allow-unordered', '--max-entries', '200', unordered=True)
    t.index('lists')
    t.log('lists')
    t.admin('bucket rm', '--bucket', 'lists', '--purge-objects', '--bypass-gc')


def list_versions(t, bucket):
    t.s3('list_objects', Bucket=bucket)
    t.s3('list_object_versions', Bucket=bucket)


@case
def versions(t):
    t.s3('create_bucket', Bucket='versions')
    t.s3('get_bucket_versioning', Bucket='versions')
    t.put('versions', 'before', seed=1)
    t.put('versions', 'before', seed=2)
    t.s3('put_bucket_versioning', Bucket='versions', VersioningConfiguration={'Status': 'Enabled'})
    t.s3('get_bucket_versioning', Bucket='versions')
    ids = {}
    for key in ('before', 'one', 'two', '_under', 'dir/x'):
        for n in range(3):
            ids[key, n] = t.put('versions', key, 20 + n, seed=f'{key}{n}').get('VersionId')
            list_versions(t, 'versions')
    t.index('versions')
    t.s3('get_object', Bucket='versions', Key='one')
    t.s3('get_object', Bucket='versions', Key='one', VersionId=ids['one', 0])
    t.s3('get_object', Bucket='versions', Key='before', VersionId='null')
    t.s3('get_object', Bucket='versions', Key='one', VersionId='null')
    t.s3('get_object', Bucket='versions', Key='one', VersionId='n' * 32)
    # A marker over it, which goes again. (A second one is refused by Ceph 16.2 to 18.2 only.)
    first = t.s3('delete_object', Bucket='versions', Key='one')['VersionId']
    t.s3('get_object', Bucket='versions', Key='one')
    t.s3('head_object', Bucket='versions', Key='one', VersionId=first)
    list_versions(t, 'versions')
    t.s3('delete_object', Bucket='versions', Key='one', VersionId=first)
    list_versions(t, 'versions')
    t.s3('get_object', Bucket='versions', Key='one')
    # The newest, the middle and the only version.
    for n in (2, 0, 1, 1):
        t.s3('delete_object', Bucket='versions', Key='two', VersionId=ids['two', n])
        t.s3('get_object', Bucket='versions', Key='two')
        list_versions(t, 'versions')
    t.s3('delete_object', Bucket='versions', Key='absent')
    t.s3('delete_object', Bucket='versions', Key='absent', VersionId='n' * 32)
    t.s3('delete_object', Bucket='versions', Key='before', VersionId='null')
    list_versions(t, 'versions')
    t.index('versions')
    # Suspended: what is written is the null version, and so are markers.
    t.s3('put_bucket_versioning', Bucket='versions', VersioningConfiguration={'Status': 'Suspended'})
    t.s3('get_bucket_versioning', Bucket='versions')
    for key in ('one', '_under', 'new'):
        for n in range(2):
            t.put('versions', key, 30 + n, seed=f'suspended{key}{n}')
            list_versions(t, 'versions')
        t.s3('get_object', Bucket='versions', Key=key, VersionId='null')
    t.s3('delete_object', Bucket='versions', Key='one')
    list_versions(t, 'versions')
    t.s3('delete_object', Bucket='versions', Key='_under', VersionId=ids['_under', 2])
    t.s3('delete_object', Bucket='versions', Key='_under', VersionId='null')
    t.s3('delete_object', Bucket='versions', Key='dir/x')
    list_versions(t, 'versions')
    t.s3('put_bucket_versioning', Bucket='versions', VersioningConfiguration={'Status': 'Enabled'})
    t.put('versions', 'one', seed='enabled again')
    t.put('versions', 'dir/x', 5 * MIB, seed='large')
    t.s3('copy_object', Bucket='versions', Key='copied', CopySource={'Bucket': 'versions', 'Key': 'before', 'VersionId': ids['before', 1]})
    t.s3('copy_object', Bucket='versions', Key='before', CopySource={'Bucket': 'versions', 'Key': 'before', 'VersionId': ids['before', 1]})
    t.s3('put_object_tagging', Bucket='versions', Key='before', VersionId=ids['before', 1], Tagging={'TagSet': [{'Key': 'k', 'Value': 'v'}]})
    t.s3('get_object_tagging', Bucket='versions', Key='before', VersionId=ids['before', 1])
    t.s3('put_object_acl', Bucket='versions', Key='before', VersionId=ids['before', 0], ACL='public-read')
    t.index('versions')
    for size in (1, 2, 5):
        for delimiter in ('', '/'):
            t.pages('list_object_versions', Bucket='versions', MaxKeys=size, Delimiter=delimiter)
            t.pages('list_objects_v2', Bucket='versions', MaxKeys=size, Delimiter=delimiter)
    t.log('versions')
    t.admin('bucket check', '--bucket', 'versions', '--fix', '--check-objects')
    t.admin('bucket check olh', '--bucket', 'versions')
    t.admin('bucket check unlinked', '--bucket', 'versions')
    t.admin('object stat', '--bucket', 'versions', '--object', 'before', without=('obj_tag', ))
    t.index('versions')
    t.s3('delete_bucket', Bucket='versions')
    for page in t.pages('list_object_versions', Bucket='versions', MaxKeys=3):
        # One by one: the gateway deletes those of one request at once.
        for version in page.get('Versions', []) + page.get('DeleteMarkers', []):
            t.s3('delete_object', Bucket='versions', Key=version['Key'], VersionId=version['VersionId'])
    list_versions(t, 'versions')
    t.index('versions')
    t.s3('delete_bucket', Bucket='versions')
    t.admin('gc process', '--include-all')
    t.objects('default.rgw.buckets.data')
    t.objects('default.rgw.buckets.index')


@case
def locks(t):
    t.s3('create_bucket', Bucket='locks', ObjectLockEnabledForBucket=True)
    t.s3('put_object_lock_configuration', Bucket='locks', ObjectLockConfiguration={
        'ObjectLockEnabled': 'Enabled', 'Rule': {'DefaultRetention': {'Mode': 'GOVERNANCE', 'Days': 1}}})
    t.s3('get_object_lock_configuration', Bucket='locks')
    version = t.put('locks', 'held').get('VersionId')
    t.s3('get_object_retention', Bucket='locks', Key='held')
    t.s3('delete_object', Bucket='locks', Key='held', VersionId=version)
    t.s3('put_object_legal_hold', Bucket='locks', Key='held', LegalHold={'Status': 'ON'})
    t.s3('delete_object', Bucket='locks', Key='held', VersionId=version, BypassGovernanceRetention=True)
    t.s3('put_object_legal_hold', Bucket='locks', Key='held', LegalHold={'Status': 'OFF'})
    t.s3('delete_object', Bucket='locks', Key='held', VersionId=version, BypassGovernanceRetention=True)
    t.index('locks')
    t.s3('delete_bucket', Bucket='locks')


def part(t, bucket, key, upload, number, size):
    done = t.s3('upload_part', Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=body(f'{key}{number}{size}', size))
    return {'PartNumber': number, 'ETag': done.get('ETag', '"none"')}


def multipart_of(t, bucket):
    t.s3('create_bucket', Bucket=bucket)
    if bucket.endswith('versioned'):
        t.s3('put_bucket_versioning', Bucket=bucket, VersioningConfiguration={'Status': 'Enabled'})
    uploads = {}
    for key in ('p', 'pp', 'q/r', '_under', 'given up', 'left'):
        upload = t.s3('create_multipart_upload', Bucket=bucket, Key=key, Metadata={'colour': 'green'})['UploadId']
        uploads[key] = upload
    p = uploads['p']
    parts = [part(t, bucket, 'p', p, number, size) for number, size in ((1, 5 * MIB), (2, 6 * MIB), (7, 100))]
    # A part written again replaces what it was.
    parts[1] = part(t, bucket, 'p', p, 2, 5 * MIB)
    t.pages('list_parts', Bucket=bucket, Key='p', UploadId=p)
    t.pages('list_parts', Bucket=bucket, Key='p', UploadId=p, MaxParts=2)
    t.s3('list_parts', Bucket=bucket, Key='p', UploadId='2~' + 'n' * 31)
    for size in (1, 2, 100):
        t.pages('list_multipart_uploads', Bucket=bucket, MaxUploads=size, limit=8)
        t.pages('list_multipart_uploads', Bucket=bucket, MaxUploads=size, Delimiter='/', limit=8)
    t.s3('list_multipart_uploads', Bucket=bucket, Prefix='q')
    t.index(bucket)

    def complete(key, upload, parts):
        return t.s3('complete_multipart_upload', Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={'Parts': parts})

    complete('p', p, parts[::-1])
    complete('p', p, [*parts, {'PartNumber': 9, 'ETag': '"absent"'}])
    complete('p', p, [{**parts[0], 'ETag': '"' + '0' * 32 + '"'}, *parts[1:]])
    complete('p', p, parts)
    complete('p', p, parts)
    t.s3('head_object', Bucket=bucket, Key='p')
    t.s3('get_object', Bucket=bucket, Key='p')
    t.s3('get_object', Bucket=bucket, Key='p', PartNumber=2)
    t.s3('get_object', Bucket=bucket, Key='p', Range=f'bytes={5 * MIB - 3}-{5 * MIB + 3}')
    small = uploads['q/r']
    complete('q/r', small, [part(t, bucket, 'q/r', small, n, 100) for n in (1, 2)])
    again = t.s3('create_multipart_upload', Bucket=bucket, Key='p')['UploadId']
    copied = t.s3('upload_part_copy', Bucket=bucket, Key='p', UploadId=again, PartNumber=1, CopySource={'Bucket': bucket, 'Key': 'p'},
                  CopySourceRange=f'bytes=100-{5 * MIB + 99}')
    complete('p', again, [{'PartNumber': 1, 'ETag': copied.get('CopyPartResult', {}).get('ETag', '"none"')}])
    t.s3('get_object', Bucket=bucket, Key='p')
    under = uploads['_under']
    complete('_under', under, [part(t, bucket, '_under', under, 1, 12 * MIB)])
    t.s3('copy_object', Bucket=bucket, Key='copy', CopySource={'Bucket': bucket, 'Key': '_under'})
    t.s3('get_object', Bucket=bucket, Key='copy')
    part(t, bucket, 'given up', uploads['given up'], 1, 5 * MIB)
    part(t, bucket, 'given up', uploads['given up'], 2, 10)
    t.s3('abort_multipart_upload', Bucket=bucket, Key='given up', UploadId=uploads['given up'])
    t.s3('abort_multipart_upload', Bucket=bucket, Key='given up', UploadId=uploads['given up'])
    part(t, bucket, 'left', uploads['left'], 1, 5 * MIB)
    t.index(bucket, parts=True)
    t.admin('gc list', '--include-all', unordered=True)
    t.admin('bucket radoslist', '--bucket', bucket, unordered=True)
    t.s3('delete_object', Bucket=bucket, Key='_under')
    # Not --check-objects: whether it removes a part that was replaced depends on which shard the part's random name falls into.
    t.admin('bucket check', '--bucket', bucket, '--fix')
    t.index(bucket, parts=True)
    t.log(bucket, parts=True)
    t.admin('gc process', '--include-all')
    t.s3('get_object', Bucket=bucket, Key='copy')
    t.s3('delete_bucket', Bucket=bucket)
    t.admin('bucket rm', '--bucket', bucket, '--purge-objects')
    t.admin('gc process', '--include-all')
    t.objects('default.rgw.buckets.data')
    t.objects('default.rgw.buckets.non-ec')
    t.objects('default.rgw.buckets.index')


@case
def multipart(t):
    multipart_of(t, 'parts')


@case
def multipart_versioned(t):
    multipart_of(t, 'parts-versioned')
