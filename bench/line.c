/*
 * Prints how long a cache line takes from one core to another, in ns: half of a round trip of a word between threads on
 * the cores 0 and 1, the median of some batches. Where cores share a cache that is some 60 ns; virtual machines move their cores.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 21, TRIPS = 2000 };

static _Alignas(128) _Atomic unsigned long word;

static void pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* Waits for each odd number, and answers with the next even one. */
static void *answer(void *unused)
{
	pin(1);
	for (unsigned long n = 1; n < 2ul * BATCHES * TRIPS; n += 2) {
		while (atomic_load_explicit(&word, memory_order_acquire) != n)
			;
		atomic_store_explicit(&word, n + 1, memory_order_release);
	}
	return unused;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(void)
{
	double ns[BATCHES];
	struct timespec from, to;
	pthread_t thread;

	pin(0);
	pthread_create(&thread, NULL, answer, NULL);
	for (unsigned long batch = 0, n = 1; batch < BATCHES; batch++) {
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (int trip = 0; trip < TRIPS; trip++, n += 2) {
			atomic_store_explicit(&word, n, memory_order_release);
			while (atomic_load_explicit(&word, memory_order_acquire) != n + 1)
				;
		}
		clock_gettime(CLOCK_MONOTONIC, &to);
		ns[batch] = ((to.tv_sec - from.tv_sec) * 1e9 + to.tv_nsec - from.tv_nsec) / TRIPS / 2;
	}
	pthread_join(thread, NULL);
	qsort(ns, BATCHES, sizeof(*ns), by_size);
	printf("%.0f\n", ns[BATCHES / 2]);
	return 0;
}
