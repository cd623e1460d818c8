/* Shared memory in an older version, without the call for large allocations. */
#ifndef RPCMEM_H
#define RPCMEM_H

#include "AEEStdDef.h"

enum rpc_heap_ids {
    RPCMEM_HEAP_ID_SECURE = 9,
    RPCMEM_HEAP_ID_SYSTEM = 25,
};
#define RPCMEM_DEFAULT_FLAGS 1

void rpcmem_init(void);
void *rpcmem_alloc(int heapid, uint32 flags, int size);
void rpcmem_free(void *po);
int rpcmem_to_fd(void *po);

#endif
