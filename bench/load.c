/* A steady load of writes, told second by second.
 *
 *     load POOL OBJECT_SIZE OBJECTS SECONDS [WRITE_SIZE [IN_FLIGHT]]
 *
 * IN_FLIGHT (16) writes in flight at random among OBJECTS names, which differ from those of another OBJECT_SIZE: of whole objects, or
 * of WRITE_SIZE bytes at a multiple of that, as a block device's.
 * With SECONDS 0 every object is written once, whole, in order. Prints a line a second: the second, writes, and the 50th and 99th
 * percentile and the maximum of their latencies in ms. The cluster is that of CEPH_CONF. A write that fails ends it.
 */
#include "common.h"
#include <rados/librados.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_IN_FLIGHT = 1024, MOST_A_SECOND = 1 << 20 };

static rados_ioctx_t io;
static size_t size, write_size;
static uint64_t objects, seconds, in_flight = 16;
static double end;
static atomic_ullong next_object;
static atomic_int running;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static float latencies[MOST_A_SECOND];
static size_t count;

static void *writer(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	char *data = malloc(size), name[32];
	memset(data, 'x', size);
	for (;;) {
		uint64_t i = seconds ? (uint64_t)rand_r(&seed) % objects : atomic_fetch_add(&next_object, 1);
		double begun = now();
		if (seconds ? begun >= end : i >= objects)
			break;
		snprintf(name, sizeof name, "load%zu.%llu", size, (unsigned long long)i);
		if (!seconds || write_size == size)
			check(rados_write_full(io, name, data, size), name);
		else
			check(rados_write(io, name, data, write_size, (uint64_t)rand_r(&seed) % (size / write_size) * write_size), name);
		pthread_mutex_lock(&lock);
		if (count < MOST_A_SECOND)
			latencies[count++] = (float)((now() - begun) * 1e3);
		pthread_mutex_unlock(&lock);
	}
	free(data);
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static int ascending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static void tell(int second)
{
	static float sorted[MOST_A_SECOND];
	pthread_mutex_lock(&lock);
	size_t n = count;
	memcpy(sorted, latencies, n * sizeof *sorted);
	count = 0;
	pthread_mutex_unlock(&lock);
	qsort(sorted, n, sizeof *sorted, ascending);
	if (n)
		printf("%d %zu %.2f %.2f %.2f\n", second, n, sorted[n / 2], sorted[n * 99 / 100], sorted[n - 1]);
	else
		printf("%d 0 0 0 0\n", second);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	rados_t cluster;
	pthread_t threads[MOST_IN_FLIGHT];
	if (argc < 5 || argc > 7) {
		fprintf(stderr, "load POOL OBJECT_SIZE OBJECTS SECONDS [WRITE_SIZE [IN_FLIGHT]]\n");
		return 2;
	}
	size = strtoull(argv[2], NULL, 0);
	objects = strtoull(argv[3], NULL, 0);
	seconds = strtoull(argv[4], NULL, 0);
	write_size = argc > 5 ? strtoull(argv[5], NULL, 0) : size;
	in_flight = argc > 6 ? strtoull(argv[6], NULL, 0) : in_flight;
	if (!objects || !write_size || write_size > size || !in_flight || in_flight > MOST_IN_FLIGHT) {
		fprintf(stderr, "load: no objects, writes of more or less than an object, or too many or no writes in flight\n");
		return 2;
	}
	check(rados_create(&cluster, "admin"), "create");
	check(rados_conf_read_file(cluster, NULL), "ceph.conf");
	check(rados_connect(cluster), "connect");
	check(rados_ioctx_create(cluster, argv[1], &io), argv[1]);
	end = now() + seconds;
	atomic_store(&running, (int)in_flight);
	for (uintptr_t i = 0; i < in_flight; i++)
		pthread_create(&threads[i], NULL, writer, (void *)(i + 1));
	for (int second = 1; atomic_load(&running) > 0; second++) {
		sleep(1);
		tell(second);
	}
	for (uint64_t i = 0; i < in_flight; i++)
		pthread_join(threads[i], NULL);
	rados_ioctx_destroy(io);
	rados_shutdown(cluster);
	return 0;
}
