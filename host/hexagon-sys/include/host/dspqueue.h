// The packet queue between host and DSP, as the host sees it.
#pragma once
#include "types.h"

/// 0, or one of the `AEE_*` numbers.
typedef int AEEResult;

/// Wait for ever.
#define DSPQUEUE_TIMEOUT_NONE 0xffffffff

/// What a packet holds.
enum dspqueue_packet_flags {
    DSPQUEUE_PACKET_FLAG_MESSAGE = 0x0001,
    DSPQUEUE_PACKET_FLAG_BUFFERS = 0x0002,
};

/// What is done with a buffer that a packet refers to.
enum dspqueue_buffer_flags {
    /// Counts one user more.
    DSPQUEUE_BUFFER_FLAG_REF = 0x00000004,
    /// Counts one user less.
    DSPQUEUE_BUFFER_FLAG_DEREF = 0x00000008,
    DSPQUEUE_BUFFER_FLAG_FLUSH_SENDER = 0x00000010,
    DSPQUEUE_BUFFER_FLAG_INVALIDATE_SENDER = 0x00000020,
    DSPQUEUE_BUFFER_FLAG_FLUSH_RECIPIENT = 0x00000040,
    DSPQUEUE_BUFFER_FLAG_INVALIDATE_RECIPIENT = 0x00000080,
};

struct dspqueue;
/// One side of a queue.
typedef struct dspqueue *dspqueue_t;

/// A reference to a part of a mapped buffer.
struct dspqueue_buffer {
    /// The allocation's descriptor.
    uint32_t fd;
    /// Bytes.
    uint32_t size;
    /// Byte offset in the allocation.
    uint32_t offset;
    /// `DSPQUEUE_BUFFER_FLAG_*`.
    uint32_t flags;
    /// Where the part is on this side.
    union {
        void *ptr;
        uint64_t address;
    };
};

/// Called on packets or errors, on a thread of the library's.
typedef void (*dspqueue_callback_t)(dspqueue_t queue, AEEResult error, void *context);

/// Creates a queue to a session's process.
AEEResult dspqueue_create(int domain, uint32_t flags, uint32_t req_queue_size, uint32_t resp_queue_size,
                          dspqueue_callback_t packet_callback, dspqueue_callback_t error_callback,
                          void *callback_context, dspqueue_t *queue);
/// Closes it.
AEEResult dspqueue_close(dspqueue_t queue);
/// The number by which the DSP opens its side.
AEEResult dspqueue_export(dspqueue_t queue, uint64_t *queue_id);
/// Sends a packet, waiting for room.
AEEResult dspqueue_write(dspqueue_t queue, uint32_t flags, uint32_t num_buffers, struct dspqueue_buffer *buffers,
                         uint32_t message_length, const uint8_t *message, uint32_t timeout_us);
/// Takes a packet, waiting for one.
AEEResult dspqueue_read(dspqueue_t queue, uint32_t *flags, uint32_t max_buffers, uint32_t *num_buffers,
                        struct dspqueue_buffer *buffers, uint32_t max_message_length, uint32_t *message_length,
                        uint8_t *message, uint32_t timeout_us);
/// Takes a packet if one is there.
AEEResult dspqueue_read_noblock(dspqueue_t queue, uint32_t *flags, uint32_t max_buffers, uint32_t *num_buffers,
                                struct dspqueue_buffer *buffers, uint32_t max_message_length,
                                uint32_t *message_length, uint8_t *message);
