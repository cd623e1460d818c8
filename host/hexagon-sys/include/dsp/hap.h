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
/// The fastest clock.
#define HAP_DCVS_VCORNER_MAX 255

/// Limits of one clock.
typedef struct {
    /// Corner to aim at.
    int32_t target_corner;
    /// Lowest corner.
    int32_t min_corner;
    /// Highest corner.
    int32_t max_corner;
    /// Zero.
    uint32_t reserved[3];
} HAP_corner_params_t;

/// A vote on clocks and sleep; a part counts when its `set_` field is 1.
typedef struct {
    uint8_t set_dcvs_enable;
    uint8_t dcvs_enable;
    int32_t dcvs_option;
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

/// One vote.
typedef struct {
    /// One of `HAP_POWER_SET_*`.
    int32_t type;
    union {
        /// For `HAP_POWER_SET_APPTYPE`.
        int32_t apptype;
        /// For `HAP_POWER_SET_HVX`: 1 switches the vector units on.
        uint8_t hvx_power_up;
        /// For `HAP_POWER_SET_HMX`: 1 switches the matrix unit on.
        uint8_t hmx_power_up;
        /// For `HAP_POWER_SET_DCVS_V3`.
        HAP_power_dcvs_v3_t dcvs_v3;
        /// The largest request of any version, and the alignment of all of them.
        uint64_t reserved[32];
    };
} HAP_power_request_t;

/// Votes in the name of `client`, any address of the process; 0 or an error.
int HAP_power_set(void *client, HAP_power_request_t *request);
