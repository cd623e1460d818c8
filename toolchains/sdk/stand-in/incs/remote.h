/* FastRPC's header in the shape that the SDK gives it, for tests of `cargo xtask bindgen`: decorated calls, types behind
   those that hexloom asks for, other names for some, and neither the newest flags nor all calls. Of one version's faults and
   habits there is one each; what hexloom declares and this lacks must come from hexloom's own headers. */
#ifndef REMOTE_H
#define REMOTE_H

#include <stdint.h>
#include <sys/types.h>

#define __QAIC_REMOTE(name) name
#define __QAIC_REMOTE_EXPORT
#define __QAIC_REMOTE_ATTRIBUTE
#define __QAIC_IN
#define __QAIC_OUT

#define CDSP_DOMAIN_ID 3
#define CDSP1_DOMAIN_ID 4

typedef uint32_t remote_handle;
typedef uint64_t remote_handle64;
typedef uint32_t fastrpc_async_jobid;

typedef struct {
    void *pv;
    size_t nLen;
} remote_buf;

typedef struct {
    int32_t fd;
    uint32_t offset;
} remote_dma_handle;

typedef union {
    remote_buf buf;
    remote_handle h;
    remote_handle64 h64;
    remote_dma_handle dma;
} remote_arg;

/* Nothing of hexloom's: not to be kept, nor what it refers to. */
typedef struct fastrpc_async_callback {
    void (*fn)(fastrpc_async_jobid jobid, void *context, int result);
    void *context;
} fastrpc_async_callback_t;

typedef struct fastrpc_async_descriptor {
    uint32_t type : 4;
    uint32_t reserved : 28;
    fastrpc_async_jobid jobid;
    union {
        fastrpc_async_callback_t cb;
    };
} fastrpc_async_descriptor_t;

enum handle_control_req_id {
    DSPRPC_CONTROL_LATENCY = 1,
    DSPRPC_GET_DSP_INFO = 2,
    DSPRPC_CONTROL_WAKELOCK = 3,
};

typedef enum remote_rpc_latency_flags {
    RPC_DISABLE_QOS = 0,
    RPC_PM_QOS = 1,
    RPC_ADAPTIVE_QOS = 2,
    RPC_POLL_QOS = 3,
} remote_rpc_control_latency_t;

/* Its first field has a type of its own. */
struct remote_rpc_control_latency {
    remote_rpc_control_latency_t enable;
    uint32_t latency;
};

enum remote_dsp_attributes {
    DOMAIN_SUPPORT = 0,
    UNSIGNED_PD_SUPPORT = 1,
    HVX_SUPPORT_64B = 2,
    HVX_SUPPORT_128B = 3,
    VTCM_PAGE = 4,
    VTCM_COUNT = 5,
    ARCH_VER = 6,
    HMX_SUPPORT_DEPTH = 7,
    HMX_SUPPORT_SPATIAL = 8,
    ASYNC_FASTRPC_SUPPORT = 9,
    STATUS_NOTIFICATION_SUPPORT = 10,
    FASTRPC_MAX_DSP_ATTRIBUTES = 256,
};

typedef struct remote_dsp_capability {
    uint32_t domain;
    uint32_t attribute_ID;
    uint32_t capability;
} fastrpc_capability;

enum session_control_req_id {
    FASTRPC_THREAD_PARAMS = 1,
    DSPRPC_CONTROL_UNSIGNED_MODULE = 2,
    FASTRPC_SESSION_CLOSE = 7,
    FASTRPC_REGISTER_STATUS_NOTIFICATIONS = 11,
    FASTRPC_RESERVE_NEW_SESSION = 13,
    FASTRPC_GET_EFFECTIVE_DOMAIN_ID = 14,
    FASTRPC_GET_URI = 15,
};

struct remote_rpc_control_unsigned_module {
    int domain;
    int enable;
};

struct remote_rpc_session_close {
    int domain;
};

typedef enum remote_rpc_status_flags {
    FASTRPC_USER_PD_UP = 0,
    FASTRPC_USER_PD_EXIT = 1,
    FASTRPC_USER_PD_FORCE_KILL = 2,
    FASTRPC_USER_PD_EXCEPTION = 3,
    FASTRPC_DSP_SSR = 4,
} remote_rpc_status_flags_t;

typedef int (*fastrpc_notif_fn_t)(void *context, int domain, int session, remote_rpc_status_flags_t status);

typedef struct remote_rpc_notif_register {
    void *context;
    int domain;
    fastrpc_notif_fn_t notifier_fn;
} remote_rpc_notif_register_t;

typedef struct remote_rpc_reserve_new_session {
    char *domain_name;
    uint32_t domain_name_len;
    char *session_name;
    uint32_t session_name_len;
    uint32_t effective_domain_id;
    uint32_t session_id;
} remote_rpc_reserve_new_session_t;

typedef struct remote_rpc_effective_domain_id {
    char *domain_name;
    uint32_t domain_name_len;
    uint32_t session_id;
    uint32_t effective_domain_id;
} remote_rpc_effective_domain_id_t;

typedef struct remote_rpc_get_uri {
    char *domain_name;
    uint32_t domain_name_len;
    uint32_t session_id;
    char *module_uri;
    uint32_t module_uri_len;
    char *uri;
    uint32_t uri_len;
} remote_rpc_get_uri_t;

/* Without those for mappings outside the window. */
enum fastrpc_map_flags {
    FASTRPC_MAP_STATIC = 0,
    FASTRPC_MAP_RESERVED = 1,
    FASTRPC_MAP_FD = 2,
    FASTRPC_MAP_FD_DELAYED = 3,
    FASTRPC_MAP_FD_NOMAP = 16,
    FASTRPC_MAP_MAX,
};

#define MAX_DOMAIN_NAMELEN 30

/* Kinds under other names than hexloom's. */
typedef enum {
    ALL_DOMAINS,
    NSP,
    LPASS,
} fastrpc_domain_type;

typedef struct {
    int id;
    char name[MAX_DOMAIN_NAMELEN];
    fastrpc_domain_type type;
    int status;
    uint32_t card;
    uint32_t soc_id;
} fastrpc_domain;

/* Its list has a type, which hexloom's has not. */
typedef struct {
    fastrpc_domain *domains;
    int max_domains;
    int num_domains;
    uint64_t flags;
} fastrpc_domains_info;

typedef enum {
    FASTRPC_GET_DOMAINS = 0
} system_req_id;

typedef struct {
    system_req_id id;
    union {
        fastrpc_domains_info sys;
    };
} system_req_payload;

int remote_system_request(system_req_payload *req);

__QAIC_REMOTE_EXPORT int __QAIC_REMOTE(remote_handle_open)(__QAIC_IN const char *name, __QAIC_OUT remote_handle *ph) __QAIC_REMOTE_ATTRIBUTE;
__QAIC_REMOTE_EXPORT int __QAIC_REMOTE(remote_handle64_open)(__QAIC_IN const char *name, __QAIC_OUT remote_handle64 *ph) __QAIC_REMOTE_ATTRIBUTE;
__QAIC_REMOTE_EXPORT int __QAIC_REMOTE(remote_handle64_invoke)(__QAIC_IN remote_handle64 h, __QAIC_IN uint32_t dwScalars, __QAIC_IN remote_arg *pra) __QAIC_REMOTE_ATTRIBUTE;
__QAIC_REMOTE_EXPORT int __QAIC_REMOTE(remote_handle64_close)(__QAIC_IN remote_handle64 h) __QAIC_REMOTE_ATTRIBUTE;
__QAIC_REMOTE_EXPORT int __QAIC_REMOTE(remote_handle_control)(__QAIC_IN uint32_t req, __QAIC_IN void *data, __QAIC_IN uint32_t datalen) __QAIC_REMOTE_ATTRIBUTE;
__QAIC_REMOTE_EXPORT int __QAIC_REMOTE(remote_handle64_control)(__QAIC_IN remote_handle64 h, __QAIC_IN uint32_t req, __QAIC_IN void *data, __QAIC_IN uint32_t datalen) __QAIC_REMOTE_ATTRIBUTE;
__QAIC_REMOTE_EXPORT int __QAIC_REMOTE(remote_session_control)(__QAIC_IN uint32_t req, __QAIC_IN void *data, __QAIC_IN uint32_t datalen) __QAIC_REMOTE_ATTRIBUTE;
__QAIC_REMOTE_EXPORT int __QAIC_REMOTE(remote_handle64_invoke_async)(__QAIC_IN remote_handle64 h, __QAIC_IN fastrpc_async_descriptor_t *desc, __QAIC_IN uint32_t dwScalars, __QAIC_IN remote_arg *pra) __QAIC_REMOTE_ATTRIBUTE;
__QAIC_REMOTE_EXPORT int __QAIC_REMOTE(fastrpc_mmap)(__QAIC_IN int domain, __QAIC_IN int fd, __QAIC_IN void *addr, __QAIC_IN int offset, __QAIC_IN size_t length, __QAIC_IN enum fastrpc_map_flags flags) __QAIC_REMOTE_ATTRIBUTE;
__QAIC_REMOTE_EXPORT int __QAIC_REMOTE(fastrpc_munmap)(__QAIC_IN int domain, __QAIC_IN int fd, __QAIC_IN void *addr, __QAIC_IN size_t length) __QAIC_REMOTE_ATTRIBUTE;

#endif
