// FastRPC: sessions on a DSP, calls to a library there, and mappings of shared memory.
#pragma once
#include "types.h"

// The compute DSPs, where the library cannot list them.
#define CDSP_DOMAIN_ID 3
#define CDSP1_DOMAIN_ID 4

/// An open library.
typedef uint64_t remote_handle64;

/// Not used here; part of an argument.
typedef uint32_t remote_handle;

/// Bytes that go with a call.
typedef struct {
    void *pv;
    size_t nLen;
} remote_buf;

/// A mapped buffer that goes with a call; not used here.
typedef struct {
    int32_t fd;
    uint32_t offset;
} remote_dma_handle;

/// An argument.
typedef union {
    remote_buf buf;
    remote_handle h;
    remote_handle64 h64;
    remote_dma_handle dma;
} remote_arg;

/// How long the host's processor may sleep while the DSP works.
enum remote_rpc_latency_flags {
    RPC_DISABLE_QOS,
    /// It stays ready.
    RPC_PM_QOS,
    /// It is woken when an answer is expected.
    RPC_ADAPTIVE_QOS,
    /// It looks again and again.
    RPC_POLL_QOS,
};

/// Of `DSPRPC_CONTROL_LATENCY`.
struct remote_rpc_control_latency {
    uint32_t enable;
    /// Microseconds.
    uint32_t latency;
};

/// Of `DSPRPC_GET_DSP_INFO`.
typedef struct remote_dsp_capability {
    uint32_t domain;
    uint32_t attribute_ID;
    /// The answer.
    uint32_t capability;
} fastrpc_capability;

/// What can be asked for.
enum remote_dsp_attributes {
    DOMAIN_SUPPORT,
    UNSIGNED_PD_SUPPORT,
    HVX_SUPPORT_64B,
    HVX_SUPPORT_128B,
    VTCM_PAGE,
    VTCM_COUNT,
    /// Two digits of the low byte.
    ARCH_VER,
    HMX_SUPPORT_DEPTH,
    HMX_SUPPORT_SPATIAL,
    ASYNC_FASTRPC_SUPPORT,
    STATUS_NOTIFICATION_SUPPORT,
    MCID_MULTICAST,
};

/// Requests of `remote_handle_control` and `remote_handle64_control`.
enum handle_control_req_id {
    DSPRPC_CONTROL_LATENCY = 1,
    DSPRPC_GET_DSP_INFO = 2,
};

/// Of `DSPRPC_CONTROL_UNSIGNED_MODULE`: a process that takes unsigned libraries.
struct remote_rpc_control_unsigned_module {
    int domain;
    int enable;
};

/// Of `FASTRPC_REMOTE_PROCESS_KILL`: ends a session's process from outside, for a call to it that does not return.
struct remote_rpc_process_clean_params {
    int domain;
};

/// Of `FASTRPC_SESSION_CLOSE`: ends a session's process.
struct remote_rpc_session_close {
    int domain;
};

/// What has become of a session's process.
typedef enum remote_rpc_status_flags {
    FASTRPC_USER_PD_UP,
    FASTRPC_USER_PD_EXIT,
    FASTRPC_USER_PD_FORCE_KILL,
    FASTRPC_USER_PD_EXCEPTION,
    /// The whole DSP has restarted.
    FASTRPC_DSP_SSR,
} remote_rpc_status_flags_t;

/// Called when that changes, on a thread of the library's.
typedef int (*fastrpc_notif_fn_t)(void *context, int domain, int session, remote_rpc_status_flags_t status);

/// Of `FASTRPC_REGISTER_STATUS_NOTIFICATIONS`.
typedef struct remote_rpc_notif_register {
    void *context;
    int domain;
    fastrpc_notif_fn_t notifier_fn;
} remote_rpc_notif_register_t;

/// Of `FASTRPC_RESERVE_NEW_SESSION`. Lengths are without the final zero that names have.
typedef struct remote_rpc_reserve_new_session {
    char *domain_name;
    uint32_t domain_name_len;
    char *session_name;
    uint32_t session_name_len;
    /// The answer: what mappings and queues name the session by.
    uint32_t effective_domain_id;
    /// The answer: what its address names it by.
    uint32_t session_id;
} remote_rpc_reserve_new_session_t;

/// Of `FASTRPC_GET_EFFECTIVE_DOMAIN_ID`.
typedef struct remote_rpc_effective_domain_id {
    char *domain_name;
    uint32_t domain_name_len;
    uint32_t session_id;
    /// The answer.
    uint32_t effective_domain_id;
} remote_rpc_effective_domain_id_t;

/// Of `FASTRPC_GET_URI`.
typedef struct remote_rpc_get_uri {
    char *domain_name;
    uint32_t domain_name_len;
    uint32_t session_id;
    /// The library's own address.
    char *module_uri;
    uint32_t module_uri_len;
    /// The answer, with a final zero.
    char *uri;
    uint32_t uri_len;
} remote_rpc_get_uri_t;

/// Requests of `remote_session_control`.
enum session_control_req_id {
    DSPRPC_CONTROL_UNSIGNED_MODULE = 2,
    FASTRPC_REMOTE_PROCESS_KILL = 6,
    FASTRPC_SESSION_CLOSE = 7,
    FASTRPC_REGISTER_STATUS_NOTIFICATIONS = 11,
    FASTRPC_RESERVE_NEW_SESSION = 13,
    FASTRPC_GET_EFFECTIVE_DOMAIN_ID = 14,
    FASTRPC_GET_URI = 15,
};

/// How memory is mapped.
enum fastrpc_map_flags {
    FASTRPC_MAP_STATIC = 0,
    /// At once.
    FASTRPC_MAP_FD = 2,
    /// When the DSP asks for it.
    FASTRPC_MAP_FD_DELAYED = 3,
    FASTRPC_MAP_FD_NOMAP = 16,
    // The next two are not in every version of the library.
    /// At once, outside the 32-bit window.
    FASTRPC_MAP_FD_EXTENDED = 17,
    /// When the DSP asks for it, outside the 32-bit window.
    FASTRPC_MAP_FD_DELAYED_EXTENDED = 18,
};

/// Opens a library by its address, with its process if that is the first one.
int remote_handle64_open(const char *name, remote_handle64 *ph);
/// Calls it.
int remote_handle64_invoke(remote_handle64 h, uint32_t dwScalars, remote_arg *pra);
/// Closes it.
int remote_handle64_close(remote_handle64 h);
/// Asks or sets what is no session's.
int remote_handle_control(uint32_t req, void *data, uint32_t datalen);
/// Asks or sets what is a library's.
int remote_handle64_control(remote_handle64 h, uint32_t req, void *data, uint32_t datalen);
/// Asks or sets what is a session's.
int remote_session_control(uint32_t req, void *data, uint32_t datalen);
/// Makes an allocation known to a session's process.
int fastrpc_mmap(int domain, int fd, void *addr, int offset, size_t length, enum fastrpc_map_flags flags);
/// Takes that back.
int fastrpc_munmap(int domain, int fd, void *addr, size_t length);
