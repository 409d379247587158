/* What a disk keeps when the power goes: of every file, what it was at its last fsync, under another folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void keep(int fd)
{
    const char *from = getenv("POWER_CUT_FROM"), *to = getenv("POWER_CUT_TO");
    char link[64], path[PATH_MAX], target[PATH_MAX * 2], part[PATH_MAX * 2 + 8], block[65536];
    ssize_t n;
    off_t at = 0;
    if (!from || !to)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return;
    path[n] = 0;
    if (strncmp(path, from, strlen(from)) || path[strlen(from)] != '/')
        return;
    snprintf(target, sizeof target, "%s/%s", to, path + strlen(from) + 1);
    if (strchr(target + strlen(to) + 1, '/'))
        return; /* a folder below: nothing of ours */
    snprintf(part, sizeof part, "%s.part", target);
    int in = open(path, O_RDONLY), out = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    while (in >= 0 && out >= 0 && (n = pread(in, block, sizeof block, at)) > 0) {
        if (write(out, block, n) != n)
            abort();
        at += n;
    }
    close(in);
    close(out);
    rename(part, target);
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fsync");
    int done = real(fd);
    if (done == 0)
        keep(fd);
    return done;
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fdatasync");
    int done = real(fd);
    if (done == 0)
        keep(fd);
    return done;
}

/* A file that is gone is gone: the worst a disk may do. */
int unlink(const char *path)
{
    static int (*real)(const char *);
    const char *from = getenv("POWER_CUT_FROM"), *to = getenv("POWER_CUT_TO");
    char target[PATH_MAX * 2];
    if (!real)
        real = dlsym(RTLD_NEXT, "unlink");
    int done = real(path);
    if (done == 0 && from && to && !strncmp(path, from, strlen(from)) && path[strlen(from)] == '/') {
        snprintf(target, sizeof target, "%s/%s", to, path + strlen(from) + 1);
        real(target);
    }
    return done;
}
