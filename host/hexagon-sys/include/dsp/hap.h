// HAP, the DSP's services for a user process: mapping, power, log.
#pragma once
#include "types.h"

/// Readable.
#define HAP_PROT_READ 1
/// Writable.
#define HAP_PROT_WRITE 2
/// What a mapping call gives when it fails.
#define HAP_MAP_FAILED 0xffffffffu

/// Maps a buffer of the host, less than 2 GiB of it.
void *HAP_mmap(void *address, int bytes, int protection, int flags, int fd, long offset);
/// Takes that back.
int HAP_munmap(void *address, int bytes);
/// Maps a buffer of the host; v75 and later.
void *HAP_mmap2(void *address, uint32_t bytes, int protection, int flags, int fd, long offset);
/// Takes that back.
int HAP_munmap2(void *address, uint32_t bytes);

/// Microseconds of a count of the 19.2 MHz timer.
uint64_t HAP_perf_qtimer_count_to_us(uint64_t count);

/// A line for developers only.
#define HAP_LEVEL_LOW 1
/// A line of some interest.
#define HAP_LEVEL_MEDIUM 2
/// A line that is shown by default.
#define HAP_LEVEL_HIGH 4
/// Something is wrong.
#define HAP_LEVEL_ERROR 8
/// Nothing works any more.
#define HAP_LEVEL_FATAL 16
/// Writes a line to the system's log (FARF).
void HAP_debug_v2(int level, const char *file, int line, const char *format, ...);

/// What `HAP_mem_request` is to do: make a mapping.
#define HAP_MEM_MAP 3
/// Take one back.
#define HAP_MEM_UNMAP 4
/// With a mapping's protection: not cached.
#define HAP_MEM_CACHE_NON_SHARED 0x20
/// The mapping lies beyond the 32-bit window.
#define HAP_MEM_FLAGS_EXTENDED_MAP 2

/// A mapping to be made.
typedef struct {
    /// Where, in memory that was set aside; 0: anywhere.
    uint64_t address;
    /// How long.
    uint64_t bytes;
    /// `HAP_PROT_*` and how it is cached.
    int32_t protection;
    /// `HAP_MEM_FLAGS_*`.
    int32_t flags;
    /// The host's descriptor.
    int32_t fd;
    /// Byte offset in the buffer.
    uint64_t offset;
    /// Out: where it is.
    uint64_t mapped_address;
} HAP_mem_map_t;

/// A mapping to be taken back.
typedef struct {
    /// Where it is.
    uint64_t address;
    /// How long.
    uint64_t bytes;
} HAP_mem_unmap_t;

/// One request about memory.
typedef struct {
    /// `HAP_MEM_MAP` or `HAP_MEM_UNMAP`.
    uint8_t request_id;
    union {
        /// For `HAP_MEM_MAP`.
        HAP_mem_map_t map;
        /// For `HAP_MEM_UNMAP`.
        HAP_mem_unmap_t unmap;
    };
} HAP_mem_req_payload_t;

/// Does it; 0 or an error. Not every DSP has this call.
int HAP_mem_request(HAP_mem_req_payload_t *request);

// Votes for power. The DSP's compilers give an enumeration the smallest size that holds its values, so that corners have
// one byte, those of the matrix unit two, and the kind of a vote one. Offsets are those that shipped libraries write at.

/// `apptype` of work that computes.
#define HAP_POWER_COMPUTE_CLIENT_CLASS 4
/// `type` of a vote on the vector units.
#define HAP_POWER_SET_HVX 2
/// `type` of a vote that says what sort of work this is.
#define HAP_POWER_SET_APPTYPE 3
/// `type` of a vote on clocks and sleep.
#define HAP_POWER_SET_DCVS_V3 12
/// `type` of a vote on the matrix unit.
#define HAP_POWER_SET_HMX 13
/// `type` of a vote on the matrix unit and its clock; v75 and later.
#define HAP_POWER_SET_HMX_V2 14
/// The fastest clock.
#define HAP_DCVS_VCORNER_MAX 255
/// The fastest clock of the matrix unit.
#define HAP_DCVS_EXP_VCORNER_MAX 0xffff
/// `dcvs_option`: the system may go up and down.
#define HAP_DCVS_V2_ADJUST_UP_DOWN 1
/// `perf_mode`: the upper of a corner's clocks.
#define HAP_CLK_PERF_HIGH 0

/// Limits of one clock.
typedef struct {
    /// Corner to aim at.
    uint8_t target_corner;
    /// Lowest corner.
    uint8_t min_corner;
    /// Highest corner.
    uint8_t max_corner;
    /// Zero.
    uint32_t reserved[3];
} HAP_corner_params_t;

/// A vote on clocks and sleep; a part counts when its `set_` field is 1.
typedef struct {
    uint8_t set_dcvs_enable;
    uint8_t dcvs_enable;
    /// `HAP_DCVS_V2_*`, looked at when the system may change clocks.
    uint8_t dcvs_option;
    uint8_t set_latency;
    uint32_t latency;
    uint8_t set_core_params;
    HAP_corner_params_t core_params;
    uint8_t set_bus_params;
    HAP_corner_params_t bus_params;
    uint8_t set_dcvs_v3_params;
    uint32_t dcvs_v3_params[6];
    uint8_t set_sleep_disable;
    uint8_t sleep_disable;
} HAP_power_dcvs_v3_t;

/// A vote on the matrix unit and its clock; a part counts when its `set_` field is 1.
typedef struct {
    uint8_t set_power;
    uint8_t power_up;
    uint8_t set_clock;
    /// 1: the clock that goes with the core's.
    uint8_t pick_default;
    /// Corner to aim at.
    uint16_t target_corner;
    /// Lowest corner.
    uint16_t min_corner;
    /// Highest corner.
    uint16_t max_corner;
    /// `HAP_CLK_PERF_*`.
    uint8_t perf_mode;
    /// In place of corners; 0: none.
    uint32_t freq_mhz;
    /// The lowest; 0: none.
    uint32_t floor_freq_mhz;
    /// Zero.
    uint32_t reserved[3];
} HAP_power_hmx_v2_t;

/// One vote.
typedef struct {
    /// One of `HAP_POWER_SET_*`.
    uint8_t type;
    union {
        /// For `HAP_POWER_SET_APPTYPE`.
        uint8_t apptype;
        /// For `HAP_POWER_SET_HVX`: 1 switches the vector units on.
        uint8_t hvx_power_up;
        /// For `HAP_POWER_SET_HMX`: 1 switches the matrix unit on.
        uint8_t hmx_power_up;
        /// For `HAP_POWER_SET_HMX_V2`.
        HAP_power_hmx_v2_t hmx_v2;
        /// For `HAP_POWER_SET_DCVS_V3`.
        HAP_power_dcvs_v3_t dcvs_v3;
        /// The largest request of any version, and the alignment of all of them.
        uint64_t reserved[32];
    };
} HAP_power_request_t;

/// Votes in the name of `client`, any address of the process; 0 or an error.
int HAP_power_set(void *client, HAP_power_request_t *request);
/// Makes the bus corners of a vote on clocks hold where other clients are. Not every DSP has this call.
int sysmon_set_dcvs_v3_protected_bus_corners(HAP_power_request_t *request, uint32_t enable);

_Static_assert(sizeof(HAP_mem_map_t) == 48 && __builtin_offsetof(HAP_mem_map_t, fd) == 24, "as the DSP has it");
_Static_assert(__builtin_offsetof(HAP_mem_req_payload_t, map) == 8, "as the DSP has it");
_Static_assert(sizeof(HAP_corner_params_t) == 16 && sizeof(HAP_power_dcvs_v3_t) == 80, "as the DSP has it");
_Static_assert(__builtin_offsetof(HAP_power_dcvs_v3_t, bus_params) == 32, "as the DSP has it");
_Static_assert(__builtin_offsetof(HAP_power_dcvs_v3_t, set_sleep_disable) == 76, "as the DSP has it");
_Static_assert(sizeof(HAP_power_hmx_v2_t) == 32 && __builtin_offsetof(HAP_power_hmx_v2_t, perf_mode) == 10,
               "as the DSP has it");
_Static_assert(__builtin_offsetof(HAP_power_request_t, dcvs_v3) == 8, "as the DSP has it");
