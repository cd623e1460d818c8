// The packet queue between host and DSP, as the DSP sees it.
#pragma once
#include "types.h"

/// The packet carries a message.
#define DSPQUEUE_PACKET_FLAG_MESSAGE 1
/// The packet carries buffer references.
#define DSPQUEUE_PACKET_FLAG_BUFFERS 2
/// Write the buffer back from the sender's caches.
#define DSPQUEUE_BUFFER_FLAG_FLUSH_SENDER 0x10
/// Drop it from the recipient's caches.
#define DSPQUEUE_BUFFER_FLAG_INVALIDATE_RECIPIENT 0x80

/// One side of a queue.
typedef struct dspqueue *dspqueue_t;

/// A reference to a part of a mapped buffer.
struct dspqueue_buffer {
    /// The host's descriptor.
    uint32_t fd;
    /// Bytes.
    uint32_t size;
    /// Byte offset in the buffer.
    uint32_t offset;
    /// `DSPQUEUE_BUFFER_FLAG_*`.
    uint32_t flags;
    /// Address of the part on this side.
    uint64_t address;
};

/// Called on packets or errors.
typedef void (*dspqueue_callback_t)(dspqueue_t queue, AEEResult error, void *context);

/// Opens a queue that the host has exported; without callbacks no thread is made for it.
AEEResult dspqueue_import(uint64_t queue_id, dspqueue_callback_t on_packet, dspqueue_callback_t on_error, void *context,
                          dspqueue_t *queue);
/// Closes it.
AEEResult dspqueue_close(dspqueue_t queue);
/// Waits for a packet and tells what it holds, without taking it.
AEEResult dspqueue_peek(dspqueue_t queue, uint32_t *flags, uint32_t *n_buffers, uint32_t *message_bytes,
                        uint32_t timeout_us);
/// Takes a packet if one is there.
AEEResult dspqueue_read_noblock(dspqueue_t queue, uint32_t *flags, uint32_t max_buffers, uint32_t *n_buffers,
                                struct dspqueue_buffer *buffers, uint32_t max_message_bytes, uint32_t *message_bytes,
                                uint8_t *message);
/// Sends a packet, waiting for room.
AEEResult dspqueue_write(dspqueue_t queue, uint32_t flags, uint32_t n_buffers, struct dspqueue_buffer *buffers,
                         uint32_t message_bytes, const uint8_t *message, uint32_t timeout_us);
