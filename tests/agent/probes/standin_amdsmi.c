/* A stand-in libamd_smi.so at its C ABI: one MI300X. Offsets (AT_...) and sizes are the Python package's own. */
#include <stdint.h>
#include <string.h>

#define PUT(type, out, at, value) (*(type *)((char *)(out) + (at)) = (value))

static uint64_t accumulator = 1000000;

int amdsmi_init(uint64_t flags) { return 0; }
int amdsmi_shut_down(void) { return 0; }

int amdsmi_get_socket_handles(uint32_t *count, void **out) {
  *count = 1;
  if (out) out[0] = (void *)1;
  return 0;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **out) {
  *count = 1;
  if (out) out[0] = socket;
  return 0;
}

int amdsmi_get_gpu_device_uuid(void *gpu, uint32_t *length, char *out) {
  strcpy(out, "73ff74a1-0000-1000-8000-000000000001");
  return 0;
}

int amdsmi_get_gpu_asic_info(void *gpu, void *out) {
  strcpy((char *)out + AT_asic_info_market_name, "AMD Instinct MI300X");
  return 0;
}

int amdsmi_get_gpu_device_bdf(void *gpu, uint64_t *out) {
  *out = 0x1100; /* function 3 bits, device 5, bus 8, domain 48 */
  return 0;
}

int amdsmi_get_gpu_driver_info(void *gpu, void *out) {
  strcpy((char *)out + AT_driver_info_driver_version, "6.12.12");
  return 0;
}

int amdsmi_get_gpu_vram_usage(void *gpu, void *out) {
  PUT(uint32_t, out, AT_vram_usage_vram_total, 196592);
  PUT(uint32_t, out, AT_vram_usage_vram_used, 100000);
  return 0;
}

int amdsmi_get_power_info(void *gpu, void *out) {
  PUT(PowerWord, out, AT_power_info_current_socket_power, 512);
  return 0;
}

int amdsmi_get_power_cap_info(void *gpu, uint32_t sensor, void *out) {
  PUT(uint64_t, out, AT_power_cap_info_power_cap, 750000000);
  return 0;
}

/* Each reading a hundred thousand units of 15.25 microjoules on. */
int amdsmi_get_energy_count(void *gpu, uint64_t *energy, float *resolution, uint64_t *timestamp) {
  *energy = accumulator;
  *resolution = 15.25f;
  *timestamp = 0;
  accumulator += 100000;
  return 0;
}

int amdsmi_get_gpu_activity(void *gpu, void *out) {
  PUT(uint32_t, out, AT_engine_usage_gfx_activity, 87);
  return 0;
}

int amdsmi_get_gpu_process_list(void *gpu, uint32_t *count, void *out) {
  *count = 1;
  PUT(uint32_t, out, AT_proc_info_pid, 4242);
  PUT(uint64_t, out, AT_proc_info_memory_usage_vram_mem, 7516192768ull);
  return 0;
}
