// The manager of VTCM and the matrix unit.
#pragma once
#include "types.h"

/// What is asked for; opaque, larger than any version's.
typedef struct {
    uint64_t reserved[32];
} compute_res_attr_t;

/// Clears a request.
int compute_resource_attr_init(compute_res_attr_t *request);
/// 1: one user of the whole DSP at a time.
int compute_resource_attr_set_serialize(compute_res_attr_t *request, uint8_t enable);
/// 1: what is granted can be given back and taken again by number.
int compute_resource_attr_set_cache_mode(compute_res_attr_t *request, uint8_t enable);
/// 1: the matrix unit, too.
int compute_resource_attr_set_hmx_param(compute_res_attr_t *request, uint8_t enable);
/// VTCM of `bytes`, on pages of `min_page_bytes`, not less than `min_bytes`.
int compute_resource_attr_set_vtcm_param_v2(compute_res_attr_t *request, uint32_t bytes, uint32_t min_page_bytes,
                                            uint32_t min_bytes);
/// Whom to call when somebody else wants what was granted.
int compute_resource_attr_set_release_callback(compute_res_attr_t *request, int (*callback)(uint32_t id, void *client),
                                               void *client);
/// Where the granted VTCM is.
int compute_resource_attr_get_vtcm_ptr_v2(compute_res_attr_t *request, void **start, uint32_t *bytes);
/// What VTCM there is; outputs that do not matter may be null.
int compute_resource_query_VTCM(uint32_t application, uint32_t *total_bytes, void *total_pages, uint32_t *free_bytes,
                                void *free_pages);

/// Asks; 0 when it was not granted in time.
uint32_t compute_resource_acquire(compute_res_attr_t *request, uint32_t timeout_us);
/// Ends a grant.
int compute_resource_release(uint32_t id);
/// Takes what was granted in cache mode.
int compute_resource_acquire_cached(uint32_t id, uint32_t timeout_us);
/// Gives it back, to be taken again.
int compute_resource_release_cached(uint32_t id);
/// Changes the priority with which it is held.
int compute_resource_update_priority(uint32_t id, uint16_t priority);
/// Takes the matrix unit.
int compute_resource_hmx_lock(uint32_t id);
/// Gives it back.
int compute_resource_hmx_unlock(uint32_t id);
