/* The healthy stand-in in plain C, so that a process measured over it pays for itself and not for a driver in Python.
 *
 * It has the calls a monitor makes of GPUs that work, with MIG off; no faults. What it pretends comes from "machine.h",
 * written from a `Machine`. Struct layouts and return codes are NVML's own (nvml.h 12.9).
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { double mean, swing, period_s; int square; } wave;
typedef struct { u32 pid; u64 memory_bytes; } process;
typedef struct { u32 pid, percent; } sm_time;
typedef struct {
    const char *uuid, *name;
    u64 memory_bytes, memory_used_bytes, memory_reserved_bytes, throttle_reasons, energy_start_mj;
    u32 power_limit_mw, sm_clock_mhz, memory_clock_mhz, temperature_c, ecc_corrected, ecc_uncorrected;
    int power_averaged, gpm, process_n, sm_time_n;
    const wave *power_mw, *module_power_mw, *memory_power_mw, *util_percent;
    const wave *sm_percent, *occupancy_percent, *tensor_percent, *dram_percent, *nvlink_mib_s;
    const process *processes;
    const sm_time *sm_times;
} gpu;
typedef struct { const gpu *of; double at_s; } gpm_sample;

#include "machine.h" /* GPU_N, gpus[], DRIVER_VERSION */

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, MISMATCH = 25, UNKNOWN = 999
};

double standin_now_s = -1; /* a clock set by hand; below 0, the host's */
static u64 own_calls, *calls = &own_calls;
static int initialised;

static double now_s(void) {
    struct timespec t;
    if (standin_now_s >= 0) return standin_now_s;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Calls are counted in a file, where one is named, for another process to read. */
__attribute__((constructor)) static void count_in_file(void) {
    const char *path = getenv("PERTOKEN_STANDIN_CALLS");
    int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0) return;
    if (!ftruncate(fd, sizeof *calls)) {
        void *at = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) calls = at;
    }
    close(fd);
}

static double at(const wave *w, double t) {
    double phase = t / w->period_s;
    if (w->square) return w->mean + (phase - floor(phase) < 0.5 ? w->swing : -w->swing);
    return w->mean + w->swing * sin(2 * M_PI * phase);
}

static double integral(const wave *w, double t) {
    double phase = t / w->period_s, part = phase - floor(phase);
    part = w->square ? fmin(part, 1 - part) : (1 - cos(2 * M_PI * phase)) / (2 * M_PI);
    return w->mean * t + w->swing * w->period_s * part;
}

static double mean(const wave *w, double from_s, double to_s) {
    return (integral(w, to_s) - integral(w, from_s)) / (to_s - from_s);
}

static const wave *plain_power(const gpu *g) { return g->module_power_mw ? g->module_power_mw : g->power_mw; }
static u64 energy_mj(const gpu *g) { return g->energy_start_mj + integral(plain_power(g), now_s()); }
static u32 whole(double value) { return nearbyint(value); }

static int text(char *out, u32 size, const char *value) {
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return OK;
}

#define ASKED \
    __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED); \
    if (!initialised) return UNINITIALIZED
/* A call on one GPU. */
#define OF_GPU(name, body, types, ...) \
    int name types { ASKED; if (g < gpus || g >= gpus + GPU_N) return INVALID_ARGUMENT; body; return OK; }

int nvmlInitWithFlags(u32 flags) { initialised = 1; (*calls)++; return OK; }
int nvmlShutdown(void) { ASKED; initialised = 0; return OK; }
int nvmlSystemGetDriverVersion(char *out, u32 size) { ASKED; return text(out, size, DRIVER_VERSION); }
int nvmlDeviceGetCount_v2(u32 *out) { ASKED; *out = GPU_N; return OK; }

int nvmlDeviceGetHandleByIndex_v2(u32 index, const gpu **out) {
    ASKED;
    if (index >= GPU_N) return INVALID_ARGUMENT;
    *out = gpus + index;
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, const gpu **out) {
    ASKED;
    for (int i = 0; i < GPU_N; i++)
        if (!strcmp(gpus[i].uuid, uuid)) { *out = gpus + i; return OK; }
    return NOT_FOUND;
}

OF_GPU(nvmlDeviceGetUUID, return text(out, size, g->uuid), (const gpu *g, char *out, u32 size))
OF_GPU(nvmlDeviceGetName, return text(out, size, g->name), (const gpu *g, char *out, u32 size))
OF_GPU(nvmlDeviceGetIndex, *out = g - gpus, (const gpu *g, u32 *out))
OF_GPU(nvmlDeviceGetEnforcedPowerLimit, *out = g->power_limit_mw, (const gpu *g, u32 *out))
OF_GPU(nvmlDeviceGetUtilizationRates, out[0] = whole(at(g->util_percent, now_s())); out[1] = 0, (const gpu *g, u32 *out))
OF_GPU(nvmlDeviceGetPowerUsage, *out = whole(at(plain_power(g), now_s())), (const gpu *g, u32 *out))
OF_GPU(nvmlDeviceGetTotalEnergyConsumption, *out = energy_mj(g), (const gpu *g, u64 *out))
OF_GPU(nvmlDeviceGetTemperature, *out = g->temperature_c, (const gpu *g, u32 sensor, u32 *out))
OF_GPU(nvmlDeviceGetTemperatureV, out[2] = g->temperature_c, (const gpu *g, u32 *out))
OF_GPU(nvmlDeviceGetCurrentClocksEventReasons, *out = g->throttle_reasons, (const gpu *g, u64 *out))
OF_GPU(nvmlDeviceGetCurrentClocksThrottleReasons, *out = g->throttle_reasons, (const gpu *g, u64 *out))
OF_GPU(nvmlDeviceGetMigMode, *current = *pending = 0, (const gpu *g, u32 *current, u32 *pending))
/* Every GPU reaches every other one by NVLink: NVML_P2P_CAPS_INDEX_NVLINK is 2, NVML_P2P_STATUS_NOT_SUPPORTED 5. */
OF_GPU(nvmlDeviceGetP2PStatus, *out = index == 2 ? 0 : 5, (const gpu *g, const gpu *other, u32 index, u32 *out))
OF_GPU(nvmlDeviceGetMaxMigDeviceCount, *out = 7, (const gpu *g, u32 *out))

struct pci { char legacy[16]; u32 numbers[5]; char bus_id[32]; };
OF_GPU(
    nvmlDeviceGetPciInfo_v3, memset(out, 0, sizeof *out);
    memcpy(out->bus_id, "00000000:00:00.0", 17);
    out->bus_id[9] = "0123456789ABCDEF"[(g - gpus + 1) / 16];
    out->bus_id[10] = "0123456789ABCDEF"[(g - gpus + 1) % 16],
    (const gpu *g, struct pci *out)
)

int nvmlDeviceGetClockInfo(const gpu *g, u32 kind, u32 *out) {
    ASKED;
    if (kind > 2) return NOT_SUPPORTED;
    *out = kind == 2 ? g->memory_clock_mhz : g->sm_clock_mhz;
    return OK;
}

struct memory { u64 total, free, used; };
OF_GPU(
    nvmlDeviceGetMemoryInfo, out->total = g->memory_bytes; out->used = g->memory_used_bytes + g->memory_reserved_bytes;
    out->free = out->total - out->used, (const gpu *g, struct memory *out)
)

struct memory_v2 { u32 version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(const gpu *g, struct memory_v2 *out) {
    ASKED;
    if (out->version != (sizeof *out | 2 << 24)) return MISMATCH;
    out->total = g->memory_bytes;
    out->used = g->memory_used_bytes;
    out->reserved = g->memory_reserved_bytes;
    out->free = out->total - out->used - out->reserved;
    return OK;
}

struct running { u32 pid; u64 memory_bytes; u32 gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(const gpu *g, u32 *count, struct running *out) {
    ASKED;
    u32 room = *count;
    *count = g->process_n;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (int i = 0; out && i < g->process_n; i++)
        out[i] = (struct running){g->processes[i].pid, g->processes[i].memory_bytes, -1, -1};
    return OK;
}

struct sm_sample { u32 pid; u64 at_us; u32 sm, memory, encoder, decoder; };
int nvmlDeviceGetProcessUtilization(const gpu *g, struct sm_sample *out, u32 *count, u64 since_us) {
    ASKED;
    u64 last_s = now_s(), first_s = last_s > 9 ? last_s - 9 : 0;
    u32 room = *count, n = 0;
    while (first_s <= last_s && first_s * 1000000 <= since_us) first_s++;
    *count = (last_s + 1 - first_s) * g->sm_time_n;
    if (!*count) return NOT_FOUND;
    if (!out || room < *count) return INSUFFICIENT_SIZE;
    for (u64 s = first_s; s <= last_s; s++)
        for (int i = 0; i < g->sm_time_n; i++)
            out[n++] = (struct sm_sample){g->sm_times[i].pid, s * 1000000, g->sm_times[i].percent};
    return OK;
}

struct field { u32 id, scope; long long at_us, latency_us; u32 type, error; union { u32 narrow; u64 wide; } value; };
static int field(const gpu *g, struct field *f) {
    const wave *power[] = {g->power_mw, g->module_power_mw, g->memory_power_mw}, *w = power[f->scope % 3];
    double t = now_s();
    f->type = f->id == 83 || f->id == 3 || f->id == 4 ? 3 : 1; /* unsigned long long or int */
    if (f->id == 83) f->value.wide = energy_mj(g);
    else if (f->id == 3 || f->id == 4) f->value.wide = f->id == 3 ? g->ecc_corrected : g->ecc_uncorrected;
    else if (f->id == 186 && w) f->value.narrow = whole(at(w, t));
    else if (f->id == 185 && w && g->power_averaged) f->value.narrow = whole(mean(w, t - 1, t));
    else return NOT_SUPPORTED;
    return OK;
}
OF_GPU(
    nvmlDeviceGetFieldValues, for (int i = 0; i < n; i++) out[i].error = field(g, out + i),
    (const gpu *g, int n, struct field *out)
)

OF_GPU(nvmlGpmQueryDeviceSupport, out[1] = g->gpm, (const gpu *g, u32 *out))
int nvmlGpmSampleAlloc(gpm_sample **out) { ASKED; return (*out = calloc(1, sizeof **out)) ? OK : UNKNOWN; }
int nvmlGpmSampleFree(gpm_sample *sample) { ASKED; free(sample); return OK; }
OF_GPU(nvmlGpmSampleGet, *sample = ((gpm_sample){g, now_s()}), (const gpu *g, gpm_sample *sample))

struct gpm_metric { u32 id; int error; double value; const char *names[3]; };
struct gpm_request { u32 version, n; const gpm_sample *first, *last; struct gpm_metric metrics[]; };
static const wave *gpm_wave(const gpu *g, u32 id) {
    switch (id) {
    case 2: return g->sm_percent;
    case 3: return g->occupancy_percent;
    case 5: return g->tensor_percent;
    case 10: return g->dram_percent;
    case 60: case 61: return g->nvlink_mib_s;
    default: return NULL;
    }
}
int nvmlGpmMetricsGet(struct gpm_request *request) {
    ASKED;
    const gpm_sample *first = request->first, *last = request->last;
    if (request->version != 1) return MISMATCH;
    if (!first || !last || !first->of || first->at_s >= last->at_s) return INVALID_ARGUMENT;
    for (u32 i = 0; i < request->n; i++) {
        struct gpm_metric *metric = request->metrics + i;
        const wave *w = gpm_wave(last->of, metric->id);
        metric->error = w ? OK : NOT_SUPPORTED;
        if (w) metric->value = mean(w, first->at_s, last->at_s);
    }
    return OK;
}

int nvmlEventSetCreate(void **out) { ASKED; *out = &own_calls; return OK; }
int nvmlEventSetFree(void *events) { ASKED; return OK; }
OF_GPU(nvmlDeviceRegisterEvents, (void)kinds, (const gpu *g, u64 kinds, void *events))
int nvmlEventSetWait_v2(void *events, void *out, u32 timeout_ms) {
    ASKED;
    struct timespec t = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
    return TIMEOUT;
}

/* What only other monitors ask, of GPUs without graphics and fans: that of PCIe lasts 20 ms, as nvml.h says. */
int nvmlSystemGetCudaDriverVersion(u32 *out) { ASKED; *out = 13000; return OK; }
OF_GPU(nvmlDeviceGetPowerManagementLimit, *out = g->power_limit_mw, (const gpu *g, u32 *out))
OF_GPU(nvmlDeviceGetGraphicsRunningProcesses_v3, *count = 0, (const gpu *g, u32 *count, void *out))
OF_GPU(nvmlDeviceGetEncoderUtilization, *out = 0; *period_us = 100000, (const gpu *g, u32 *out, u32 *period_us))
OF_GPU(nvmlDeviceGetDecoderUtilization, *out = 0; *period_us = 100000, (const gpu *g, u32 *out, u32 *period_us))
OF_GPU(nvmlDeviceGetFanSpeed, (void)out; return NOT_SUPPORTED, (const gpu *g, u32 *out))
static const struct timespec PCIE = {0, 20000000};
OF_GPU(nvmlDeviceGetPcieThroughput, nanosleep(&PCIE, NULL); *out = 0, (const gpu *g, u32 kind, u32 *out))
