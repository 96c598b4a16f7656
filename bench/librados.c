/* One case of the benchmark against librados, for what `rados bench` does not measure.
 *
 *     librados CASE POOL SECONDS [OBJECTS]
 *
 * Prints "ready" when the measured part begins, then one line: operations done, seconds they took, mean latency in ms, largest latency in ms. The cluster is that of
 * CEPH_CONF. What a case needs first (objects, snapshots) it makes itself, untimed; the objects stay.
 */
#include "common.h"
#include <rados/librados.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { IN_FLIGHT = 16, SMALL = 4096, OMAP_OBJECTS = 64, OMAP_KEYS = 8, OMAP_PAGE = 64, XATTR_OBJECTS = 4096,
       SNAP_OBJECTS = 256, SNAP_OBJECT_SIZE = 1 << 20, SNAPS = 64 };

static rados_t cluster;
static rados_ioctx_t io;
static uint64_t list_objects = 100000;
static rados_snap_t snaps[SNAPS];
static char payload[SMALL];

/* The measured part begins. */
static double begin_measuring(void)
{
	puts("ready");
	fflush(stdout);
	return now();
}

/* Numbers that are the same in every run. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static void name(char *out, const char *kind, uint64_t i)
{
	snprintf(out, 64, "%s.%06llu", kind, (unsigned long long)i);
}

/* An operation in flight. */
struct slot {
	double started;
	int busy;
	int result;
	rados_omap_iter_t page;
	rados_write_op_t write;
	rados_read_op_t read;
	rados_completion_t done;
	unsigned char more;
	char buf[256];
};

/* Starts operation number `i`. */
typedef void (*start_fn)(struct slot *, uint64_t i);

static struct slot slots[IN_FLIGHT];
static sem_t finished;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double total_latency, max_latency;

static void on_done(rados_completion_t c, void *arg)
{
	struct slot *s = arg;
	double took = now() - s->started;
	pthread_mutex_lock(&lock);
	total_latency += took;
	if (took > max_latency)
		max_latency = took;
	s->result = rados_aio_get_return_value(c);
	s->busy = 2;
	pthread_mutex_unlock(&lock);
	sem_post(&finished);
}

static void release(struct slot *s)
{
	check(s->result, "operation");
	rados_aio_release(s->done);
	if (s->write)
		rados_release_write_op(s->write);
	if (s->page)
		rados_omap_get_end(s->page);
	if (s->read)
		rados_release_read_op(s->read);
	s->write = NULL;
	s->read = NULL;
	s->page = NULL;
	s->busy = 0;
}

/* Keeps operations in flight until the time is over or `count` are done. Returns how many were done; measures if
 * `took` is wanted. */
static uint64_t run(start_fn start, double seconds, uint64_t count, double *took)
{
	uint64_t started = 0, ended = 0;
	double begin = took ? begin_measuring() : now();
	total_latency = max_latency = 0;
	sem_init(&finished, 0, 0);
	for (;;) {
		int more = started < count && now() - begin < seconds;
		for (int i = 0; more && i < IN_FLIGHT && started < count; i++) {
			struct slot *s = &slots[i];
			if (s->busy)
				continue;
			s->busy = 1;
			rados_aio_create_completion2(s, on_done, &s->done);
			s->started = now();
			start(s, started++);
		}
		if (ended == started)
			break;
		sem_wait(&finished);
		for (int i = 0; i < IN_FLIGHT; i++) {
			pthread_mutex_lock(&lock);
			int done = slots[i].busy == 2;
			pthread_mutex_unlock(&lock);
			if (done) {
				release(&slots[i]);
				ended++;
				break;
			}
		}
	}
	if (took)
		*took = now() - begin;
	return ended;
}

static void submit_write(struct slot *s, const char *oid)
{
	check(rados_aio_write_op_operate(s->write, io, s->done, oid, NULL, 0), "submit");
}

static void submit_read(struct slot *s, const char *oid)
{
	check(rados_aio_read_op_operate(s->read, io, s->done, oid, 0), "submit");
}

static void start_touch(struct slot *s, uint64_t i)
{
	char oid[64];
	name(oid, "list", i);
	s->write = rados_create_write_op();
	rados_write_op_create(s->write, LIBRADOS_CREATE_IDEMPOTENT, NULL);
	submit_write(s, oid);
}

static void start_small(struct slot *s, uint64_t i)
{
	char oid[64];
	name(oid, "delete", i);
	s->write = rados_create_write_op();
	rados_write_op_write_full(s->write, payload, SMALL);
	submit_write(s, oid);
}

static void start_delete(struct slot *s, uint64_t i)
{
	char oid[64];
	name(oid, "delete", i);
	s->write = rados_create_write_op();
	rados_write_op_remove(s->write);
	submit_write(s, oid);
}

static void start_omap_set(struct slot *s, uint64_t i)
{
	char oid[64], keys[OMAP_KEYS][24];
	const char *k[OMAP_KEYS], *v[OMAP_KEYS];
	size_t lens[OMAP_KEYS];
	name(oid, "omap", i % OMAP_OBJECTS);
	for (int j = 0; j < OMAP_KEYS; j++) {
		snprintf(keys[j], sizeof keys[j], "%016llx", (unsigned long long)mix(i * OMAP_KEYS + j));
		k[j] = keys[j];
		v[j] = payload;
		lens[j] = 64;
	}
	s->write = rados_create_write_op();
	rados_write_op_omap_set(s->write, k, v, lens, OMAP_KEYS);
	submit_write(s, oid);
}

static void start_omap_get(struct slot *s, uint64_t i)
{
	char oid[64], after[24];
	name(oid, "omap", i % OMAP_OBJECTS);
	/* The lower half: so that there is a whole page behind it. */
	snprintf(after, sizeof after, "%016llx", (unsigned long long)mix(i) >> 1);
	s->read = rados_create_read_op();
	rados_read_op_omap_get_vals2(s->read, after, "", OMAP_PAGE, &s->page, &s->more, NULL);
	submit_read(s, oid);
}

static void start_setxattr(struct slot *s, uint64_t i)
{
	char oid[64];
	name(oid, "xattr", mix(i) % XATTR_OBJECTS);
	s->write = rados_create_write_op();
	rados_write_op_setxattr(s->write, "attribute", payload, 64);
	submit_write(s, oid);
}

static void start_first_xattr(struct slot *s, uint64_t i)
{
	char oid[64];
	name(oid, "xattr", i);
	s->write = rados_create_write_op();
	rados_write_op_write_full(s->write, payload, SMALL);
	rados_write_op_setxattr(s->write, "attribute", payload, 64);
	submit_write(s, oid);
}

static void start_getxattr(struct slot *s, uint64_t i)
{
	char oid[64];
	name(oid, "xattr", mix(i) % XATTR_OBJECTS);
	check(rados_aio_getxattr(io, oid, s->done, "attribute", s->buf, sizeof s->buf), "submit");
}

/* Overwrites all objects once per snapshot: each write makes a clone. */
static void start_snap(struct slot *s, uint64_t i)
{
	char oid[64];
	rados_snap_t context[SNAPS];
	int round = i / SNAP_OBJECTS % SNAPS;
	if (i % SNAP_OBJECTS == 0) {
		for (int j = 0; j <= round; j++)
			context[j] = snaps[round - j];
		check(rados_ioctx_selfmanaged_snap_set_write_ctx(io, snaps[round], context, round + 1), "snapshot context");
	}
	name(oid, "snap", i % SNAP_OBJECTS);
	check(rados_aio_write(io, oid, s->done, payload, SMALL, mix(i) % (SNAP_OBJECT_SIZE / SMALL) * SMALL), "submit");
}

/* Lists all objects, again and again: one listing is too short to be measured. */
static uint64_t list(double seconds, double *took)
{
	uint64_t n = 0;
	double begin = begin_measuring();
	do {
		rados_list_ctx_t ctx;
		const char *entry;
		check(rados_nobjects_list_open(io, &ctx), "list");
		while (rados_nobjects_list_next(ctx, &entry, NULL, NULL) == 0)
			n++;
		rados_nobjects_list_close(ctx);
	} while (now() - begin < seconds);
	*took = now() - begin;
	return n;
}

static void on_notify(void *arg, uint64_t notify, uint64_t handle, uint64_t from, void *data, size_t len)
{
	rados_notify_ack(io, "watched", notify, handle, NULL, 0);
}

static uint64_t notify(double seconds, double *took)
{
	uint64_t handle, n = 0;
	check(rados_write_full(io, "watched", "x", 1), "write");
	check(rados_watch2(io, "watched", &handle, on_notify, NULL, NULL), "watch");
	double begin = begin_measuring();
	total_latency = max_latency = 0;
	while (now() - begin < seconds) {
		char *reply = NULL;
		size_t len;
		double t = now();
		check(rados_notify2(io, "watched", "hello", 5, 5000, &reply, &len), "notify");
		rados_buffer_free(reply);
		t = now() - t;
		total_latency += t;
		if (t > max_latency)
			max_latency = t;
		n++;
	}
	*took = now() - begin;
	rados_unwatch2(io, handle);
	return n;
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: librados CASE POOL SECONDS [OBJECTS]\n");
		return 2;
	}
	const char *what = argv[1];
	double seconds = atof(argv[3]), took = 0;
	uint64_t ops = 0, all = UINT64_MAX;
	if (argc > 4)
		list_objects = strtoull(argv[4], NULL, 10);
	memset(payload, 'p', sizeof payload);
	check(rados_create(&cluster, "admin"), "create");
	check(rados_conf_read_file(cluster, getenv("CEPH_CONF")), "configuration");
	check(rados_connect(cluster), "connect");
	check(rados_ioctx_create(cluster, argv[2], &io), "pool");

	if (!strcmp(what, "omap-set")) {
		ops = run(start_omap_set, seconds, all, &took);
	} else if (!strcmp(what, "omap-get")) {
		run(start_omap_set, 1e9, 8192, NULL);
		ops = run(start_omap_get, seconds, all, &took);
	} else if (!strcmp(what, "setxattr") || !strcmp(what, "getxattr")) {
		run(start_first_xattr, 1e9, XATTR_OBJECTS, NULL);
		ops = run(what[0] == 's' ? start_setxattr : start_getxattr, seconds, all, &took);
	} else if (!strcmp(what, "delete")) {
		run(start_small, 1e9, 10000, NULL);
		ops = run(start_delete, 1e9, 10000, &took);
	} else if (!strcmp(what, "list")) {
		run(start_touch, 1e9, list_objects, NULL);
		ops = list(seconds, &took);
	} else if (!strcmp(what, "notify")) {
		ops = notify(seconds, &took);
	} else if (!strcmp(what, "snap-overwrite")) {
		char oid[64], *big = calloc(1, SNAP_OBJECT_SIZE);
		for (int i = 0; i < SNAP_OBJECTS; i++) {
			name(oid, "snap", i);
			check(rados_write_full(io, oid, big, SNAP_OBJECT_SIZE), "write");
		}
		free(big);
		for (int i = 0; i < SNAPS; i++)
			check(rados_ioctx_selfmanaged_snap_create(io, &snaps[i]), "snapshot");
		ops = run(start_snap, seconds, SNAPS * SNAP_OBJECTS, &took);
	} else {
		fprintf(stderr, "no such case: %s\n", what);
		return 2;
	}
	printf("%llu %.6f %.4f %.4f\n", (unsigned long long)ops, took, ops ? total_latency / ops * 1e3 : 0, max_latency * 1e3);
	rados_ioctx_destroy(io);
	rados_shutdown(cluster);
	return 0;
}
