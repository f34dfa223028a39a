/* A wall clock that a test steers, preloaded into redis-server.
 *
 * The scripts take their time from the server, so a test that wants to see a window pass must move
 * the server's clock: this stands before libc's and answers with the microseconds that the test
 * last wrote into the file named by STEERED_CLOCK (mapped, so that a step costs no system call).
 * Monotonic clocks stay real: the event loop goes on.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *micros;

__attribute__((constructor)) static void map_clock(void) {
    const char *path = getenv("STEERED_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) micros = page;
}

int clock_gettime(clockid_t which, struct timespec *out) {
    if (micros && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t now = *micros;
        out->tv_sec = now / 1000000;
        out->tv_nsec = now % 1000000 * 1000;
        return 0;
    }
    return syscall(SYS_clock_gettime, which, out);
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
