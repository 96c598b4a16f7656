# Images of the first format, which clients only make where they are made to.

export RBD_FORCE_ALLOW_V1=1
rbd pool init p
head -c 5M /dev/urandom >file
rbd import --no-progress --image-format 1 file p/old
rbd create --image-format 1 --size 1M p/other
[ "$(rbd ls p | sort | xargs)" = 'old other' ]
says 'format: 1' rbd info p/old
same p/old file
rbd snap create --no-progress p/old@one
cp file one
put p/old 1000000 new
put_file file 1000000 new
rbd snap create --no-progress p/old@two
fails 17 rbd snap create --no-progress p/old@two
rbd snap rename p/old@two p/old@zwei
[ "$(rbd snap ls p/old | tail -n +2 | awk '{print $2}' | xargs)" = 'one zwei' ]
same p/old file
same p/old@one one
rbd snap rollback --no-progress p/old@one
same p/old one
same p/old@zwei file
rbd snap rm --no-progress p/old@zwei
rbd mv p/other p/another
fails 17 rbd mv p/another p/old
rbd rm --no-progress p/another
prints old rbd ls p
# It becomes one of the second format.
rbd migration prepare p/old p/new
rbd migration execute --no-progress p/new
rbd migration commit --no-progress p/new
says 'format: 2' rbd info p/new
same p/new one
same p/new@one one
prints new rbd ls p
