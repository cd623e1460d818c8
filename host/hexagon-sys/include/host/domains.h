// Listing the DSPs that there are: not in every version of the library, and not the same in those that have it.
#pragma once
#include "types.h"

#define MAX_DOMAIN_NAMELEN 30

/// Kinds of DSPs that can be listed.
#define FASTRPC_NSP 1

/// Requests of `remote_system_request`.
typedef enum {
    FASTRPC_GET_DOMAINS = 0,
} system_req_id;

/// What is asked for, and how much there was. Records of the answer lie at `domains`; how each is laid out depends on the
/// version, see host/fastrpc/src/domains.rs.
typedef struct {
    void *domains;
    /// Records that fit there.
    int max_domains;
    /// The answer: records that there are.
    int num_domains;
    /// Kind, in the low five bits.
    uint64_t flags;
} fastrpc_domains_info;

/// A request about the whole system.
typedef struct {
    system_req_id id;
    union {
        fastrpc_domains_info sys;
    };
} system_req_payload;

/// Asks about the whole system.
int remote_system_request(system_req_payload *req);
