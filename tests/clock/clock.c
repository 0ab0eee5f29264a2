// Shifts the wall clock of a process by CLOCK_SHIFT_SECONDS: preloaded, it stands before the functions of the C library.
// The monotonic clock stays as it is, as on a machine whose clock is set wrong.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

typedef int (*clock_function)(clockid_t, struct timespec *);

static clock_function unshifted;
static long shift;

__attribute__((constructor)) static void prepare(void) {
    const char *text = getenv("CLOCK_SHIFT_SECONDS");
    shift = text ? atol(text) : 0;
    unshifted = (clock_function)dlsym(RTLD_NEXT, "clock_gettime");
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
