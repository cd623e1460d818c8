// Shared memory: each allocation has a descriptor, which names it everywhere else.
#pragma once
#include "types.h"

/// Cached on the host.
#define RPCMEM_DEFAULT_FLAGS 1

/// Where memory comes from.
enum rpc_heap_ids {
    /// The system's own.
    RPCMEM_HEAP_ID_SYSTEM = 25,
};

/// Allocates whole pages, or gives null.
void *rpcmem_alloc(int heapid, uint32_t flags, int size);
/// The same for any size; newer libraries.
void *rpcmem_alloc2(int heapid, uint32_t flags, size_t size);
/// Gives an allocation back.
void rpcmem_free(void *po);
/// The descriptor of an allocation, or -1.
int rpcmem_to_fd(void *po);
