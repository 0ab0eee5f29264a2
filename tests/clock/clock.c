// Shifts the wall clock of a process by CLOCK_SHIFT_SECONDS. The process preloads this library, which replaces
// functions of the C library. The monotonic clock is not shifted, as on a machine whose clock is set wrong.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

typedef int (*clock_function)(clockid_t, struct timespec *);
typedef int (*wait_function)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

static clock_function unshifted;
static wait_function wait_unshifted;
static long shift;

__attribute__((constructor)) static void prepare(void) {
    const char *text = getenv("CLOCK_SHIFT_SECONDS");
    shift = text ? atol(text) : 0;
    unshifted = (clock_function)dlsym(RTLD_NEXT, "clock_gettime");
    // A look-up by name alone finds the oldest version of this function, whose condition variables have another layout.
    void *wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    wait_unshifted = (wait_function)(wait ? wait : dlsym(RTLD_NEXT, "pthread_cond_timedwait"));
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!unshifted) {
        prepare();
    }
    int failed = unshifted(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec += shift;
    }
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) {
        *now = exact.tv_sec;
    }
    return exact.tv_sec;
}

// The kernel ends the wait by its own clock. Without the shift, a deadline in the kernel's past would end the wait at
// once, and the caller would wait again and again.
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    if (!wait_unshifted) {
        prepare();
    }
    struct timespec exact = *until;
    exact.tv_sec -= shift;
    return wait_unshifted(condition, mutex, &exact);
}
