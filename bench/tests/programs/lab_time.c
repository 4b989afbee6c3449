/*
 * Opens a device of a lab, and checks that clocks follow the lab's time, which is much slower than the machine's, and
 * that absolute timeouts last as long as the machine has them last. Prints what is wrong; exit status 1 then.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>

static int failed;

static void check(int holds, const char *what)
{
	if (!holds) {
		printf("%s\n", what);
		failed = 1;
	}
}

static double machine(void)
{
	struct timespec t;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static double clock_of(clockid_t id)
{
	struct timespec t;

	check(!clock_gettime(id, &t), "clock_gettime fails");
	return t.tv_sec + t.tv_nsec / 1e9;
}

static double day(void)
{
	struct timeval t;

	gettimeofday(&t, NULL);
	return t.tv_sec + t.tv_usec / 1e6;
}

static double utc(void)
{
	struct timespec t;

	timespec_get(&t, TIME_UTC);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Seconds by the time stamp counter, as the kernel states its frequency. */
static double counter(void)
{
#ifdef __x86_64__
	static double mhz;
	unsigned low, high, core;
	char line[256];
	FILE *info;

	if (!mhz) {
		info = fopen("/proc/cpuinfo", "r");
		while (fgets(line, sizeof(line), info) && sscanf(line, "cpu MHz : %lf", &mhz) != 1)
			;
		fclose(info);
		__asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(core));
	}
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return ((unsigned long)high << 32 | low) / mhz / 1e6;
#else
	return clock_of(CLOCK_MONOTONIC);
#endif
}

static void *quiet_thread(void *unused)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	return (void *)(long)(counter() < 0);
}

static double monotonic(void) { return clock_of(CLOCK_MONOTONIC); }
static double raw(void) { return clock_of(CLOCK_MONOTONIC_RAW); }
static double coarse(void) { return clock_of(CLOCK_MONOTONIC_COARSE); }
static double boot(void) { return clock_of(CLOCK_BOOTTIME); }
static double real(void) { return clock_of(CLOCK_REALTIME); }

static struct timespec in(clockid_t id, double seconds)
{
	double t = clock_of(id) + seconds;

	return (struct timespec){t, (t - (long)t) * 1e9};
}

static void lasts(double since, const char *what)
{
	check(machine() - since > 0.15, what);
}

static void deadlines(void)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t condition = PTHREAD_COND_INITIALIZER, steady;
	pthread_condattr_t attributes;
	struct itimerspec alarm = {};
	unsigned long expirations;
	struct timespec until;
	sem_t semaphore;
	double since;
	int timer;

	sem_init(&semaphore, 0, 0);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&steady, &attributes);
	pthread_mutex_lock(&mutex);

	since = machine(), until = in(CLOCK_REALTIME, 0.2);
	check(pthread_cond_timedwait(&condition, &mutex, &until) == ETIMEDOUT, "a condition does not time out");
	lasts(since, "pthread_cond_timedwait");
	since = machine(), until = in(CLOCK_MONOTONIC, 0.2);
	check(pthread_cond_timedwait(&steady, &mutex, &until) == ETIMEDOUT, "a condition does not time out");
	lasts(since, "pthread_cond_timedwait, CLOCK_MONOTONIC");
	since = machine(), until = in(CLOCK_MONOTONIC, 0.2);
	check(pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until) == ETIMEDOUT, "it does not time out");
	lasts(since, "pthread_cond_clockwait");
	since = machine(), until = in(CLOCK_REALTIME, 0.2);
	check(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT, "a mutex does not time out");
	lasts(since, "pthread_mutex_timedlock");
	since = machine(), until = in(CLOCK_REALTIME, 0.2);
	check(sem_timedwait(&semaphore, &until) == -1 && errno == ETIMEDOUT, "a semaphore does not time out");
	lasts(since, "sem_timedwait");
	since = machine(), until = in(CLOCK_MONOTONIC, 0.2);
	check(!clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL), "clock_nanosleep fails");
	lasts(since, "clock_nanosleep");
	timer = timerfd_create(CLOCK_MONOTONIC, 0);
	since = machine(), alarm.it_value = in(CLOCK_MONOTONIC, 0.2);
	check(!timerfd_settime(timer, TFD_TIMER_ABSTIME, &alarm, NULL), "timerfd_settime fails");
	check(read(timer, &expirations, sizeof(expirations)) == sizeof(expirations), "a timer is not read");
	lasts(since, "timerfd_settime");
}

static void handler(int signal) { _exit(7); }

/* How a child ends that reads address 0. */
static int end_of_child(int handled)
{
	int status;

	if (!fork()) {
		if (handled) {
			struct sigaction action = {.sa_handler = handler}, old;

			sigaction(SIGSEGV, &action, NULL);
			sigaction(SIGSEGV, NULL, &old);
			if (old.sa_handler != handler || counter() <= 0)
				_exit(8);
		}
		alarm(60);
		*(volatile int *)0;
		_exit(0);
	}
	wait(&status);
	return status;
}

int main(void)
{
	static const struct {
		const char *name;
		double (*read)(void);
	} clocks[] = {
		{"CLOCK_MONOTONIC", monotonic}, {"CLOCK_MONOTONIC_RAW", raw}, {"CLOCK_MONOTONIC_COARSE", coarse},
		{"CLOCK_BOOTTIME", boot}, {"CLOCK_REALTIME", real}, {"gettimeofday", day}, {"timespec_get", utc},
		{"the time stamp counter", counter},
	};
	enum { CLOCKS = sizeof(clocks) / sizeof(*clocks) };
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *device = devices && *devices ? ibv_open_device(*devices) : NULL;
	double began[CLOCKS], since;
	pthread_t thread;
	void *result;
	int status;

	check(device != NULL, "there is no device");
	since = machine();
	for (int i = 0; i < CLOCKS; i++)
		began[i] = clocks[i].read();
	usleep(500000);
	for (int i = 0; i < CLOCKS; i++) {
		double passed = clocks[i].read() - began[i];

		/* It is fifty times slower. */
		if (passed <= 0 || passed > (machine() - since) / 10) {
			printf("%s: %f of %f s\n", clocks[i].name, passed, machine() - since);
			failed = 1;
		}
	}
	check(time(NULL) - (long)real() <= 1, "time(2) differs from CLOCK_REALTIME");
	deadlines();
	pthread_create(&thread, NULL, quiet_thread, NULL);
	pthread_join(thread, &result);
	check(!result, "the counter of a thread that blocks signals");
	status = end_of_child(0);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "a fault does not end the program");
	status = end_of_child(1);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "a fault does not reach the program's handler");
	check(!system("date > /dev/null"), "a program that it starts fails");
	printf("%s\n", failed ? "failed" : "all clocks follow the lab");
	return failed;
}
