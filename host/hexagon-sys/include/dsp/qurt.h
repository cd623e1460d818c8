// QuRT, the DSP's kernel: threads, futexes, caches, vector units, counters.
#pragma once
#include "types.h"

/// Done.
#define QURT_EOK 0
/// Bytes of a thread's name, its end mark included.
#define QURT_THREAD_NAME_BYTES 16
/// The least urgent priority; smaller numbers are more urgent.
#define QURT_THREAD_PRIORITY_LEAST 254
/// `bus_priority` of a thread that does not care.
#define QURT_THREAD_BUS_PRIORITY_DEFAULT 255
/// `timetest_id` of a thread that does not care.
#define QURT_THREAD_TIMETEST_ID_DEFAULT 0xfffe
/// `detach_state` of a thread that will be joined.
#define QURT_THREAD_JOINABLE 1

typedef uint32_t qurt_thread_t;

/// What a thread is made from.
typedef struct {
    /// Name for debuggers, ended by 0.
    char name[QURT_THREAD_NAME_BYTES];
    /// 0: control block in ordinary memory.
    uint8_t tcb_partition;
    /// Software thread number for the profiler.
    uint8_t stid;
    /// Priority, 1 to 254.
    uint16_t priority;
    /// 0: the stack is the one given here.
    uint8_t autostack;
    /// Bus priority.
    uint8_t bus_priority;
    /// Number for timing tools.
    uint16_t timetest_id;
    /// Bytes of the stack.
    uint32_t stack_size;
    /// Lowest address of the stack.
    void *stack_addr;
    /// Whether it will be joined.
    uint16_t detach_state;
    /// Room for fields of later versions, zero.
    uint16_t reserved[15];
} qurt_thread_attr_t;

/// Starts a thread on `entry(arg)`.
int qurt_thread_create(qurt_thread_t *thread, qurt_thread_attr_t *attributes, void (*entry)(void *arg), void *arg);
/// Waits for the end of a thread; also succeeds, with another number, when it has ended already.
int qurt_thread_join(uint32_t thread, int *status);
/// The calling thread.
qurt_thread_t qurt_thread_get_id(void);
/// A thread's priority, or a negative number.
int qurt_thread_get_priority(qurt_thread_t thread);

/// Blocks while `*word == expected`; there is no deadline.
int qurt_futex_wait(void *word, int expected);
/// Wakes up to `count` threads that wait on `word`.
int qurt_futex_wake(void *word, int count);
/// Blocks for a time in microseconds.
void qurt_sleep(uint64_t duration_us);

/// Write back.
#define QURT_MEM_CACHE_FLUSH 0
/// Drop.
#define QURT_MEM_CACHE_INVALIDATE 1
/// Write back, then drop.
#define QURT_MEM_CACHE_FLUSH_INVALIDATE 2
/// The data cache.
#define QURT_MEM_DCACHE 1
/// Cleans whole lines that a range touches.
int qurt_mem_cache_clean(uint32_t address, uint32_t bytes, int operation, int cache);

/// Vector units by vector length: bits 15 to 8 count those with 128 bytes.
int qurt_hvx_get_units(void);
/// Gives the calling thread's vector context back.
int qurt_hvx_unlock(void);

/// How many threads run at once.
typedef struct {
    /// Hardware threads.
    uint32_t max_hthreads;
} qurt_sysenv_max_hthreads_t;
/// Asks for the number of hardware threads.
int qurt_sysenv_get_max_hw_threads(qurt_sysenv_max_hthreads_t *threads);

/// Configuration register of the performance monitor.
#define QURT_PMUCFG 4
/// Events of counters 0 to 3.
#define QURT_PMUEVTCFG 5
/// Events of counters 4 to 7.
#define QURT_PMUEVTCFG1 10
/// Starts or stops the performance monitor.
void qurt_pmu_enable(int enable);
/// Reads one of its registers: counters 0 to 3 are 0 to 3, counters 4 to 7 are 6 to 9.
uint32_t qurt_pmu_get(int reg);
/// Writes one of its registers.
void qurt_pmu_set(int reg, uint32_t value);
