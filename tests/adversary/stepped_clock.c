/* A wall clock that can be stepped for single processes: preload this library (LD_PRELOAD) and name a file of one
 * 64-bit integer in ADVERSARY_CLOCK: nanoseconds that are added to the wall clock of every process that maps it.
 *
 * What follows the wall clock in the kernel follows it here too: the boot time in /proc/stat, and deadlines of waits.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t none = 0;
static const volatile int64_t *offset = &none;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_openat)(int, const char *, int, ...);

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("ADVERSARY_CLOCK");
    int fd;
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_openat = dlsym(RTLD_NEXT, "openat64");
    fd = path ? real_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) offset = at;
    close(fd);
}

static struct timespec shifted(struct timespec t, int64_t by_ns) {
    int64_t ns = t.tv_nsec + by_ns % SECOND;
    t.tv_sec += by_ns / SECOND;
    if (ns < 0) { ns += SECOND; t.tv_sec -= 1; }
    if (ns >= SECOND) { ns -= SECOND; t.tv_sec += 1; }
    t.tv_nsec = ns;
    return t;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real_clock_gettime(clock, out);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) *out = shifted(*out, *offset);
    return failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
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

/* A wait until a time of the wall clock ends when the stepped clock shows it: as the kernel's own, it lasts days longer
 * if the clock is set back by days meanwhile. Threads of a Python built without sem_clockwait wait so. */
int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static int (*real)(sem_t *, const struct timespec *);
    struct timespec deadline, soon;
    if (!real) real = dlsym(RTLD_NEXT, "sem_timedwait");
    for (;;) {
        real_clock_gettime(CLOCK_REALTIME, &soon);
        soon = shifted(soon, SECOND / 20);
        deadline = shifted(*until, -*offset);
        int last = deadline.tv_sec < soon.tv_sec || (deadline.tv_sec == soon.tv_sec && deadline.tv_nsec <= soon.tv_nsec);
        if (!real(semaphore, last ? &deadline : &soon)) return 0;
        if (errno != ETIMEDOUT || last) return -1;
    }
}

/* The text of /proc/stat with the boot time that the stepped clock makes of it. */
static int stepped_stat(void) {
    static const size_t most = 1 << 20;
    char *text = malloc(most), *line, *end;
    int from = real_openat(AT_FDCWD, "/proc/stat", O_RDONLY | O_CLOEXEC), to = memfd_create("stat", MFD_CLOEXEC);
    size_t size = 0;
    ssize_t part;
    while (text && from >= 0 && size < most - 1 && (part = read(from, text + size, most - 1 - size)) > 0) size += part;
    if (from >= 0) close(from);
    if (!text || to < 0) { free(text); return -1; }
    text[size] = 0;
    line = strstr(text, "\nbtime ");
    if (line) {
        long long boot_s = strtoll(line + 7, &end, 10);
        dprintf(to, "%.*s\nbtime %lld%s", (int)(line - text), text, (long long)(boot_s + *offset / SECOND), end);
    } else {
        dprintf(to, "%s", text);
    }
    free(text);
    lseek(to, 0, SEEK_SET);
    return to;
}

static int opened(int folder, const char *path, int flags, mode_t mode) {
    if (!real_openat) real_openat = dlsym(RTLD_NEXT, "openat64");
    return *offset && !strcmp(path, "/proc/stat") ? stepped_stat() : real_openat(folder, path, flags, mode);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return opened(AT_FDCWD, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
